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
  advance(lane);
}

bool SegmentPlan::find(Lane& lane) const {
  if (lane.ended) return false;
  auto next = lane.source->next();
  lane.ended = !next || next->begin >= lane.end;
  if (!lane.ended) {
    lane.found.push_back(*std::move(next));
  } else if (next && next->start_time != kTimeMin) {
    lane.beyond = std::max(lane.last, next->start_time);
  }
  return !lane.ended;
}

std::optional<Segment> SegmentPlan::take(Lane& lane) const {
  if (lane.found.empty() && !find(lane)) return std::nullopt;
  Segment out = std::move(lane.found.front());
  lane.found.pop_front();
  lane.last = out.start_time = std::max(lane.last, out.start_time);
  return out;
}

// When the segment before those that were found has ended: the first that has a time of its own says so. Where many have
// none, it is not known.
Time SegmentPlan::end_before_found(Lane& lane) const {
  constexpr size_t kMostUntimed = 64;
  for (size_t i = 0; i < kMostUntimed; ++i) {
    if (i == lane.found.size() && !find(lane)) return lane.beyond;
    if (lane.found[i].start_time != kTimeMin) return std::max(lane.last, lane.found[i].start_time);
  }
  return kTimeMax;
}

void SegmentPlan::advance(Lane& lane) const {
  lane.head.reset();
  while (auto at = take(lane)) {
    if (at->start_time > time_.hi) {  // so are all after it
      lane.head = cut_to_begin(*std::move(at));
      lane.found.clear();
      lane.ended = true;
      return;
    }
    if (time_.lo == kTimeMin || std::max(end_before_found(lane), at->end_time) >= time_.lo) {
      lane.head = std::move(at);
      return;
    }
    forget_passed(*at);
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
