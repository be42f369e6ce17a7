#include "decoder/calls/call_part.h"

#include "decoder/pipeline/plan.h"

namespace asof {

CallPart::CallPart(const Capture& capture, const Arch& arch, const PipelineOptions& options, Shard shard)
    : last_(shard.index + 1 == shard.count), records_(capture.streams.size()) {
  const auto each = [&](const auto& visit) {
    SegmentPlan plan(arch, capture, options, ChunkOrder::kByTime);
    while (const auto segment = plan.next()) visit(*segment);
  };
  uint64_t total = 0, at = 0, number = 0;
  each([&](const Segment& s) { total += s.end - s.begin; });
  const uint64_t from = shard_begin(total, shard.index, shard.count);
  const uint64_t to = shard_begin(total, uint64_t{shard.index} + 1, shard.count);
  bool any = false;
  each([&](const Segment& s) {
    if (at >= from && (at < to || last_)) {
      if (!any) first_ = number;
      any = true;
      end_ = number + 1;
      Range& range = records_[s.stream];
      if (range.begin == range.end) range.begin = s.index;
      range.end = s.index + 1;
    }
    at += s.end - s.begin;
    ++number;
  });
  if (!any) first_ = end_ = number;
}

void PartSink::slice(const Slice& s) {
  if (now_ == Now::kBefore) return;
  if (around_) {
    open_.erase(s.id);
    if (s.parent != 0) open_.insert(s.parent);
  }
  if (within()) {
    ++slices_;
    to_.slice(s);
  } else if (around_) {
    around_(s.id, s.parent);
  }
}

void PartSink::gap(const GapSlice& g) {
  if (!within()) return;
  ++gaps_;
  to_.gap(g);
}

}  // namespace asof
