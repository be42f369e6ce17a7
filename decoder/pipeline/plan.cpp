#include "decoder/pipeline/plan.h"

#include <algorithm>
#include <utility>

#include "decoder/pipeline/stream_choice.h"
#include "decoder/pipeline/window_start.h"

namespace asof {
namespace {

// A loss in front of it may begin within the wanted time, and tracing that was on before went on until then.
Segment cut_to_begin(Segment s) {
  s.end = s.tail_end = s.begin;
  s.only_before = true;
  return s;
}

}  // namespace

SegmentPlan::SegmentPlan(const Arch& arch, const Capture& capture, const PipelineOptions& options,
                         ChunkOrder order, const std::vector<Time>& reached)
    : capture_(capture), time_(options.time), order_(order) {
  constexpr uint64_t kAllWindows = 64 << 20, kLargest = 8 << 20, kSmallest = 512 << 10;
  window_ = std::clamp(kAllWindows / std::max<uint64_t>(1, capture.streams.size()), kSmallest, kLargest);
  for (size_t i = 0; i < capture.streams.size(); ++i) {
    const Stream& stream = capture.streams[i];
    const auto range = chosen_range(stream, i, options);
    if (!range) continue;
    trace_bytes_ += bytes_within(stream, *range);
    Lane& lane = lanes_.emplace_back();
    lane.source = arch.segments(stream, i, window_start(arch, stream, i, range->begin, time_.lo));
    lane.ahead = dynamic_cast<ScanAhead*>(lane.source.get());
    lane.end = range->end;
    if (i < reached.size()) lane.last = reached[i];
    if (order == ChunkOrder::kByTime) open(lane);
    if (!lane.open || lane.head)
      turns_.emplace(lane.open ? lane.head->start_time : kTimeMin, lanes_.size() - 1);
  }
}

void SegmentPlan::open(Lane& lane) const {
  lane.open = true;
  find(lane);
  advance(lane);
}

void SegmentPlan::find(Lane& lane) const {
  lane.found = lane.source->next();
  if (!lane.found) return;
  lane.last = lane.found->start_time = std::max(lane.last, lane.found->start_time);
  if (lane.found->begin < lane.end) return;
  lane.beyond = lane.last;
  lane.found.reset();
}

void SegmentPlan::advance(Lane& lane) const {
  for (lane.head.reset(); lane.found;) {
    if (lane.found->start_time > time_.hi) {  // so are all after it
      lane.head = cut_to_begin(*std::exchange(lane.found, std::nullopt));
      return;
    }
    Segment at = *std::exchange(lane.found, std::nullopt);
    find(lane);
    const Time end = std::max(lane.found ? lane.found->start_time : lane.beyond, at.end_time);
    if (end == kTimeMin || end >= time_.lo) {
      lane.head = std::move(at);
      return;
    }
    forget_passed(at);
  }
}

// By stream: a lane is used until its end. By time: until another one's head is earlier; of equal ones the
// first stream's goes first.
std::optional<Segment> SegmentPlan::next() {
  while (!turns_.empty()) {
    const size_t i = turns_.top().second;
    Lane& lane = lanes_[i];
    if (!lane.open) open(lane);
    if (order_ == ChunkOrder::kByStream) lane_.store(i, std::memory_order_relaxed);
    std::optional<Segment> out = std::exchange(lane.head, std::nullopt);
    if (out) advance(lane);
    if (order_ == ChunkOrder::kByTime || !out) turns_.pop();
    if (order_ == ChunkOrder::kByTime && lane.head) turns_.emplace(lane.head->start_time, i);
    if (out) return out;
  }
  return std::nullopt;
}

bool SegmentPlan::scan_ahead(size_t most) {
  constexpr size_t kLook = 8;  // a capture may have thousands of lanes
  const bool by_time = order_ == ChunkOrder::kByTime;
  const size_t first =
      by_time ? lane_.fetch_add(1, std::memory_order_relaxed) : lane_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < std::min(kLook, lanes_.size()); ++i) {
    if (!by_time && first + i >= lanes_.size()) return false;
    ScanAhead* const ahead = lanes_[(first + i) % lanes_.size()].ahead;
    if (ahead != nullptr && ahead->scan_ahead(most)) return true;
  }
  return false;
}

void SegmentPlan::forget_passed(const Segment& s) const {
  const uint64_t reached = s.end / window_ * window_;
  if (s.begin >= reached || reached < window_) return;
  const uint64_t first = s.begin / window_ * window_;
  capture_.streams[s.stream].forget(first < window_ ? 0 : first - window_, reached - window_);
}

}  // namespace asof
