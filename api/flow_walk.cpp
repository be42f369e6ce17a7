#include "api/flow_walk.h"

#include <algorithm>
#include <utility>

#include "api/convert.h"
#include "decoder/model/task_of.h"

namespace asof::v0 {
namespace {

constexpr uint64_t kDefaultWaiting = 256 << 20;  // bytes of chunks that wait for those of other streams

uint64_t bytes_of(const asof::Chunk& c) {
  return sizeof c + c.steps.bytes() + c.events.capacity() * sizeof(asof::Event) +
         c.gaps.capacity() * sizeof(asof::Gap);
}

// A gap's one time, for filters and order.
Time time_of(const asof::Gap& gap) {
  if (gap.time.lo != kTimeMin) return gap.time.lo;
  return gap.time.hi == kTimeMax ? kTimeMin : gap.time.hi;
}

// A gap that reaches into the wanted time is there from its begin on.
Time time_within(const asof::Gap& gap, const Filter& filter) {
  const Time t = time_of(gap);
  const bool reaches = t != kTimeMin && t < filter.time.first && gap.time.hi >= filter.time.first;
  return reaches ? filter.time.first : t;
}

bool contains(const std::vector<int32_t>& list, int32_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

bool TaskFilter::wanted(Time t, Space space) {
  if (walk_.flows()) {
    const asof::ContextChange* const task = walk_.task(space);
    if (by_flow_ && t == time_ && task == task_) return wanted_;
    by_flow_ = true;
    return decide(t, space, task);
  }
  if (looked_ && !by_flow_ && t == time_ && space == space_) return wanted_;
  if (!looked_ || t >= until_ || t < looked_at_) {
    const auto& all = stream_.contexts;
    const auto after = std::upper_bound(all.begin(), all.end(), t,
                                        [](Time v, const asof::ContextChange& c) { return v < c.time; });
    by_time_ = all.empty() ? nullptr : after == all.begin() ? &*after : &*(after - 1);
    until_ = after == all.end() ? kTimeMax : after->time;
    looked_at_ = t;
  }
  looked_ = true;
  by_flow_ = false;
  return decide(t, space, asof::task_of(stream_, t, space, by_time_));
}

bool TaskFilter::decide(Time t, Space space, const asof::ContextChange* task) {
  time_ = t;
  space_ = space;
  task_ = task;
  who_ = {stream_.cpu, task == nullptr ? -1 : task->pid, task == nullptr ? stream_.tid : task->tid};
  wanted_ = (t == kTimeMin || (t >= filter_.time.first && t <= filter_.time.last)) &&
            (filter_.pids.empty() || contains(filter_.pids, who_.pid)) &&
            (filter_.tids.empty() || contains(filter_.tids, who_.tid));
  return wanted_;
}

FlowWalk::FlowWalk(const std::shared_ptr<const CaptureData>& data, const Filter& filter, FlowWants wants)
    : filter_(filter),
      wants_(wants),
      limit_(filter.max_memory != 0 ? filter.max_memory : kDefaultWaiting),
      reader_(data, to_internal(filter),
              filter.order == Order::kTime ? asof::ChunkOrder::kByTime : asof::ChunkOrder::kByStream) {
  const auto& streams = data->capture.streams;
  lanes_.reserve(streams.size());
  for (const asof::Stream& s : streams) lanes_.emplace_back(filter_, data->capture, s);
  // A single stream waits for no other.
  if (filter.order == Order::kStream || streams.size() == 1) watermark_ = kTimeMax;
}

bool FlowWalk::next(FlowPoint& point) {
  if (given_ != nullptr) find_head(*given_);
  given_ = nullptr;
  if (waiting_ <= limit_ / 2) forced_ = false;
  const auto may_go = [&](const Lane& lane) {
    return all_ || forced_ || watermark_ == kTimeMax || lane.latest < watermark_;
  };
  while (true) {
    const auto key = [&](const Lane& lane) {
      return std::pair(lane.latest, static_cast<size_t>(&lane - lanes_.data()));
    };
    if (current_ == nullptr || !current_->head || key(*current_) > second_) current_ = earliest();
    if (current_ != nullptr && may_go(*current_)) {
      point = *current_->head;
      given_ = current_;
      return true;
    }
    current_ = nullptr;
    if (!pull()) return false;
  }
}

// The lane whose head comes first; second_: up to where it stays the first.
FlowWalk::Lane* FlowWalk::earliest() {
  Lane* best = nullptr;
  second_ = {kTimeMax, lanes_.size()};
  for (Lane& lane : lanes_) {
    if (!lane.head) continue;
    if (best == nullptr || lane.latest < best->latest) {
      if (best != nullptr) second_ = {best->latest, static_cast<size_t>(best - lanes_.data())};
      best = &lane;
    } else if (lane.latest < second_.first) {
      second_ = {lane.latest, static_cast<size_t>(&lane - lanes_.data())};
    }
  }
  return best;
}

// Brings more to choose from. False: that was all.
bool FlowWalk::pull() {
  auto chunk = std::make_unique<asof::Chunk>();
  if (!reader_.next(*chunk)) {
    // What still waits is released now.
    return !std::exchange(all_, true);
  }
  Lane& lane = lanes_[chunk->stream];
  if (watermark_ != kTimeMax) watermark_ = chunk->segment_start;
  waiting_ += bytes_of(*chunk);
  lane.chunks.push_back(std::move(chunk));
  if (!lane.head) find_head(lane);
  if (waiting_ > limit_ && !forced_) {
    forced_ = true;
    ++reordered_;
  }
  return true;
}

void FlowWalk::find_head(Lane& lane) {
  lane.head.reset();
  while (!lane.chunks.empty() && !find_in_chunk(lane)) {
    waiting_ -= bytes_of(*lane.chunks.front());
    reader_.give_back(std::move(*lane.chunks.front()));
    lane.chunks.pop_front();
    lane.step.reset();
  }
}

bool FlowWalk::find_in_chunk(Lane& lane) {
  const asof::Chunk& c = *lane.chunks.front();
  if (!lane.step) {
    lane.step.emplace(c.steps.begin());
    lane.event = lane.gap = 0;
    lane.before_step = true;
  }
  asof::StepList::Iterator& step = *lane.step;
  while (true) {
    const bool end = step == c.steps.end();
    const size_t index = end ? c.steps.size() : step.position();
    const Space space = end ? lane.space : step->block->space;
    if (lane.before_step) {
      if (find_gap(lane, c, index) || find_event(lane, c, index, space)) return true;
      lane.before_step = false;
      if (!end) lane.tasks.walk().step(*step);
      if (!end && wants_.steps && at_step(lane, *step)) return true;
    }
    if (end) return false;
    lane.space = space;
    ++step;
    lane.before_step = true;
  }
}

bool FlowWalk::find_gap(Lane& lane, const asof::Chunk& c, size_t index) {
  while (lane.gap < c.gaps.size() && c.gaps[lane.gap].step <= index) {
    const asof::Gap& gap = c.gaps[lane.gap++];
    lane.tasks.walk().interrupt();
    if (wants_.gaps && set_head(lane, time_within(gap, filter_), kKernelSpace)) {
      lane.head->gap = &gap;
      return true;
    }
  }
  return false;
}

bool FlowWalk::find_event(Lane& lane, const asof::Chunk& c, size_t index, Space space) {
  while (lane.event < c.events.size() && c.events[lane.event].step <= index) {
    const asof::Event& e = c.events[lane.event++];
    lane.tasks.walk().event(e);
    const bool kernel = e.ip == 0 || asof::is_kernel_address(e.ip);
    if (wants_.events && set_head(lane, e.time, kernel ? kKernelSpace : space)) {
      lane.head->event = &e;
      return true;
    }
  }
  return false;
}

bool FlowWalk::at_step(Lane& lane, const asof::Step& step) {
  if (step.count == 0 || !set_head(lane, step.time, step.block->space)) return false;
  lane.head->step = &step;
  return true;
}

bool FlowWalk::set_head(Lane& lane, Time time, Space space) {
  if (!lane.tasks.wanted(time, space)) return false;
  lane.latest = std::max(lane.latest, time);
  lane.head.emplace();
  lane.head->stream = lane.stream;
  lane.head->who = lane.tasks.who();
  return true;
}

}  // namespace asof::v0
