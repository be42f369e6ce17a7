#include "decoder/calls/task_walk.h"

#include <algorithm>

#include "decoder/calls/switcher.h"
#include "decoder/model/task_of.h"

namespace asof {

TaskWalk::TaskWalk(const Capture& capture, const Stream& stream) : stream_(&stream) {
  const Symbol* symbol = capture.exclude_kernel ? nullptr : stack_switcher(capture);
  if (symbol != nullptr) switcher_ = symbol->range;
}

// An exchange can be ahead of the time, so later it never goes back.
void TaskWalk::resume(Time t) {
  if (!begun_) {
    const auto& all = stream_->contexts;
    const auto after = std::ranges::upper_bound(all, t, {}, &ContextChange::time);
    at_ = after == all.begin() ? 0 : static_cast<size_t>(after - all.begin()) - 1;
    now_ = t;
    begun_ = true;
  } else {
    advance(t);
    follow(0);
  }
  flow_ = true;
  in_switcher_ = in_kernel_ = left_space_ = false;
}

void TaskWalk::advance(Time t) {
  if (t <= now_) return;
  if (now_ != kTimeMin) timing_ = std::max(elapsed(now_, t), timing_ - timing_ / 8);
  now_ = t;
}

void TaskWalk::follow(Time delay) {
  const auto& all = stream_->contexts;
  const Time until = saturating_add(now_, -delay);
  while (at_ + 1 < all.size() && all[at_ + 1].time <= until) {
    ++at_;
    known_ = true;
  }
}

void TaskWalk::exchange() {
  const auto& all = stream_->contexts;
  const size_t before = at_;
  follow(0);
  if (at_ == before && at_ + 1 < all.size() &&
      all[at_ + 1].time <= saturating_add(now_, switch_lateness(timing_)))
    ++at_;
  const bool changed = at_ != before;
  if (changed || !switcher_.empty()) known_ = changed;
}

void TaskWalk::step(const Step& s) {
  if (!flow_ || (s.flags & Step::kAfterGap) != 0) {
    resume(s.time);
  } else if (left_space_ && switcher_.empty()) {
    exchange();
  }
  advance(s.time);
  const Addr ip = s.block->ip;
  const bool kernel = is_kernel_address(ip);
  if (switcher_.empty()) {
    follow(switch_lateness(timing_));
  } else {
    const bool inside = switcher_.contains(ip);
    if (in_switcher_ && !inside && (s.flags & Step::kAsyncEntry) == 0) exchange();
    in_switcher_ = inside;
  }
  if (in_kernel_ && !kernel) follow(0);
  in_kernel_ = kernel;
  left_space_ = kernel && s.block->kind == BranchKind::kPaging && s.count == s.block->count;
}

void TaskWalk::event(const Event& e) {
  if (e.kind == EventKind::kTraceStart) return resume(e.time);
  if (!flow_ || !switcher_.empty()) return;
  advance(e.time);
  follow(switch_lateness(timing_));
}

const ContextChange* TaskWalk::task(Space space) const {
  if (!known_ || stream_->contexts.empty()) return nullptr;
  return task_of(*stream_, now_, space, &stream_->contexts[at_]);
}

}  // namespace asof
