#include "arch/splitter.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace asof {

void Splitter::take_stretches(uint64_t start) {
  for (size_t i = 0; i < stream_.pieces.size(); ++i) {
    const StreamPiece& p = stream_.pieces[i];
    if (p.offset + p.size() <= start) continue;
    const uint64_t begin = std::max(p.offset, start);
    const bool joins = !stretches_.empty() && !p.discontinuity && stretches_.back().end == p.offset;
    if (!joins) stretches_.push_back({i, i, begin, begin});
    stretches_.back().last_piece = i;
    stretches_.back().end = p.offset + p.size();
  }
}

std::optional<Segment> Splitter::next() {
  for (; stretch_ < stretches_.size(); ++stretch_) {
    if (!std::exchange(open_, true)) enter(stretches_[stretch_]);
    if (point()) {
      Segment found = segment(stretches_[stretch_]);
      found.index = found.begin;
      return found;
    }
    open_ = false;
  }
  if (!before_) before_ = loss_at_end();
  if (!before_) return std::nullopt;
  // Trace after the last sync point of the stream: an empty segment carries the gap.
  Segment g = empty_segment();
  g.index = g.begin = g.end = g.tail_end =
      stretches_.empty() ? before_->end : std::min(before_->end, stretches_.back().end);
  g.before = std::exchange(before_, std::nullopt);
  return g;
}

void Splitter::enter(const Stretch& stretch) {
  first_ = true;
  open(stretch);
  const uint64_t end = point().value_or(stretch.end);
  if (point() && end <= stretch.begin) return;
  if (tells_nothing(stretch, stretch.begin, end)) return;
  if (before_)
    before_->end = end;
  else
    before_ = no_sync_gap(stretch.begin, end);
}

Segment Splitter::empty_segment() {
  Segment g;
  g.stream = stream_index_;
  return g;
}

void Splitter::take_gap(Segment& segment) {
  // What the segment before began with is its own, but in front of the first one of all there is none.
  if (std::exchange(first_, false))
    segment.before = recorded_loss(last_begin_ + (has_last_ ? 1 : 0), segment);
  if (!segment.before) segment.before = std::move(before_);
  before_.reset();
  last_begin_ = segment.begin;
  has_last_ = true;
}

// Trace that was lost at or after offset `from`, before the segment's sync point: a gap of no bytes but
// of time.
std::optional<Gap> Splitter::recorded_loss(uint64_t from, const Segment& segment) const {
  for (const StreamLoss& loss : stream_.losses) {
    if (loss.offset < from || loss.offset > segment.begin) continue;
    Gap g;
    g.begin = loss.offset;
    g.end = segment.begin;
    g.code = loss.code;
    g.reason = loss.bytes ? fmt::format("{} ({} bytes)", loss.reason, *loss.bytes) : loss.reason;
    g.time = {std::min(loss.time, segment.start_time), segment.start_time};
    return g;
  }
  return std::nullopt;
}

// Of trace that was announced; where the kernel stopped the trace, nobody knows for how long.
std::optional<Gap> Splitter::loss_at_end() {
  if (stretches_.empty() || std::exchange(ended_, true)) return std::nullopt;
  for (const StreamLoss& loss : stream_.losses) {
    if (loss.offset < stretches_.back().end || loss.code != Code::kTraceBytesMissing) continue;
    Gap g;
    g.begin = loss.offset;
    g.end = loss.offset + loss.bytes.value_or(0);
    g.code = loss.code;
    g.reason = loss.reason;
    g.time = {loss.time, loss.until};
    return g;
  }
  return std::nullopt;
}

Gap Splitter::no_sync_gap(uint64_t begin, uint64_t end) const {
  Gap g;
  g.begin = begin;
  g.end = end;
  g.code = Code::kNoSyncPoint;
  g.reason = fmt::format("no sync point ({}) in {} bytes of trace", sync_point_, end - begin);
  return g;
}

}  // namespace asof
