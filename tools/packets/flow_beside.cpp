#include "tools/packets/flow_beside.h"

#include <algorithm>

#include "arch/chunk_items.h"
#include "tools/output/diagnostics.h"

namespace asof {

bool FlowBeside::is_one_of(std::string_view name, Names names) {
  return std::ranges::find(names, name) != names.end();
}

uint64_t FlowBeside::held_number(std::string_view field) const {
  PacketFields fields;
  reader_->describe(fields);
  for (const PacketField& f : fields.all())
    if (f.name == field) return f.value;
  return 0;
}

// Streams without any flow come in their place.
void FlowBeside::list_before(size_t index) {
  for (; next_stream_ < index && !stopped_; ++next_stream_) {
    const Stream& stream = capture_.streams[next_stream_];
    if (!lister_.wants(stream)) continue;
    if (const auto reader = arch_.packets(stream, next_stream_)) lister_.list(stream, *reader);
    stopped_ = lister_.stopped();
  }
}

void FlowBeside::open(size_t index, const Stream& stream) {
  end_stream();
  list_before(index);
  next_stream_ = index + 1;
  stream_ = &stream;
  reader_ = arch_.packets(stream, index);
  ended_ = reader_ == nullptr;
  holds_ = following_ = shown_ = false;
  bits_.clear();
  used_ = passed_ = segment_ = 0;
  if (reader_ == nullptr) return;
  uses_.clear();
  for (const std::string_view name : reader_->names()) uses_.push_back(use_of(name));
  lister_.start(stream, *reader_);
  start(index);
}

void FlowBeside::end_stream() {
  if (reader_ == nullptr) return;
  pass(UINT64_MAX);
  reader_.reset();
}

void FlowBeside::finish() {
  end_stream();
  list_before(capture_.streams.size());
}

void FlowBeside::release() {
  if (!holds_) return;
  holds_ = false;
  passed_ = held_.offset + (held_.type == kPacketLost ? 0 : held_.size);
  if (held_use() == Use::kBits) {
    PacketFields fields;
    reader_->describe(fields);
    bits_ = fields.all().empty() ? std::string_view() : fields.all().front().text;
    used_ = 0;
  }
  const bool shown = lister_.add(*stream_, *reader_, held_);
  if (held_use() != Use::kOther) shown_ = shown;
}

bool FlowBeside::take_bit(bool& one) {
  if (!has_bits()) return false;
  const char c = bits_[used_++];
  one = c == 'T' || c == 'E';
  return true;
}

bool FlowBeside::read() {
  if (!holds_ && !ended_) {
    holds_ = reader_->next(held_);
    stopped_ = lister_.stopped();
    ended_ = !holds_ || stopped_;
  }
  return holds_ && !ended_;
}

bool FlowBeside::hold() {
  while (read()) {
    if (held_use() != Use::kOther) return true;
    release();
  }
  return false;
}

bool FlowBeside::pass(uint64_t end) {
  bool unused = has_bits();
  while (read() && held_.offset < end) {
    unused = unused || held_use() == Use::kBits || held_use() == Use::kTarget;
    release();
  }
  drop_bits();
  return unused;
}

void FlowBeside::lose() {
  if (following_) ++unmatched_;
  following_ = false;
  drop_bits();
}

bool FlowBeside::release_if(Names names) {
  if (!hold() || !is_one_of(held_name(), names)) return false;
  release();
  drop_bits();
  return true;
}

bool FlowBeside::release_at(std::string_view field, Addr ip, Names names) {
  return hold() && held_number(field) == ip && release_if(names);
}

void FlowBeside::at_gap(const Gap& g) {
  pass(std::max(g.begin, g.end));
  following_ = false;
  lister_.line(
      [&](PacketStyle& style, std::string& out) { style.gap(out, g, gap_text(capture_, *stream_, g)); });
  following_ = g.resume_ip != 0 && resumes(g.resume_ip);
}

void FlowBeside::print(const Step& s) {
  if (!shown_) return;
  lister_.line([&](PacketStyle& style, std::string& out) {
    style.block(out, s, symbol_text(capture_, *stream_, s.block->ip, s.time), following_);
  });
}

void FlowBeside::deliver(Chunk& chunk, const Stream& stream, Prepared*) {
  if (stream_ != &stream) open(chunk.stream, stream);
  if (reader_ == nullptr) return;
  if (chunk.segment > segment_ + 1) following_ = false;  // --time left out what is between
  segment_ = chunk.segment;
  ChunkItems items(chunk);
  const auto before = [&](size_t position) {
    items.before(
        position, [&](const Gap& g) { at_gap(g); }, [&](const Event& e) { at_event(e); });
  };
  size_t last = SIZE_MAX;
  for (auto step = chunk.steps.begin(); step != chunk.steps.end() && !stopped_; ++step) {
    if (step.position() != last) before(last = step.position());
    at_step(*step);
  }
  before(SIZE_MAX);
}

std::unique_ptr<FlowBeside> make_flow_beside(const Capture& capture, const Arch& arch, Lister& lister) {
  return arch.name() == "x86-64" ? make_pt_flow(capture, arch, lister) : make_etm_flow(capture, arch, lister);
}

}  // namespace asof
