#include "tools/packets/lister.h"

#include "decoder/pipeline/stream_choice.h"

namespace asof {

bool PacketSelection::wants(const Stream& s) const {
  PipelineOptions chosen;
  chosen.cpus = cpus;
  chosen.tids = tasks.tids;
  return chosen_range(s, 0, chosen).has_value();
}

Lister::Lister(const Capture& capture, const PacketSelection& selection, const TypeFilter& types,
               const PacketFormat& format, bool count, Output& out)
    : selection_(selection),
      types_(types),
      tasks_(capture.tasks, selection.tasks),
      style_(make_packet_style(format)),
      only_count_(count),
      out_(out) {
  if (!count) out_.write(style_->header());
}

void Lister::start(const Stream& stream, const PacketReader& reader) {
  style_->start(stream, reader.names());
}

void Lister::list(const Stream& stream, PacketReader& reader) {
  constexpr uint64_t kLook = 4096;  // packets between looks for an interruption
  start(stream, reader);
  TracePacket k;
  for (uint64_t n = 0; reader.next(k) && !is_behind(k); ++n) {
    if (n % kLook == 0 && stopped()) return;
    add(stream, reader, k);
  }
}

bool Lister::add(const Stream& stream, const PacketReader& reader, const TracePacket& k) {
  if (!passes(stream, k)) return false;
  count_.add(k);
  if (only_count_) return true;
  fields_.clear();
  if (k.is_packet()) reader.describe(fields_);
  line_.clear();
  style_->line(line_, k, fields_.all());
  out_.write(line_);
  return true;
}

bool Lister::passes(const Stream& stream, const TracePacket& k) {
  if (!types_.passes(k.type) || is_behind(k)) return false;
  if (k.offset < selection_.offsets.begin && k.offset + k.size <= selection_.offsets.begin) return false;
  if (k.time < selection_.time.lo || k.time > selection_.time.hi) return false;
  return tasks_.passes(stream, k.time);
}

}  // namespace asof
