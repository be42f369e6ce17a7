#include "decoder/calls/call_stack.h"

#include <algorithm>

namespace asof {

void CallStack::push(Frame frame, const Landing& to) {
  if (frames_.size() >= kMaxFrames) close_all(false);
  frame.function = to.function;
  frame.entry = to.at;
  frame.origin = to.origin;
  frames_.push_back(frame);
  host_.opened(frames_.back());
}

void CallStack::pop(uint32_t flags, bool lost) {
  Frame& frame = frames_.back();
  Frame* below = frames_.size() > 1 ? &frames_[frames_.size() - 2] : nullptr;
  frame.flags |= flags;
  if (below != nullptr) below->guessed |= frame.guessed;
  host_.closed(frame, below, lost);
  frames_.pop_back();
}

void CallStack::pop_to(size_t size, uint32_t flags) {
  while (frames_.size() > size) pop(flags);
}

void CallStack::close_parked(size_t keep) {
  while (parked_.size() > keep) {
    parked_.back().flags |= Slice::kEndUnknown;
    host_.closed(parked_.back(), parked_.size() > 1 ? &parked_[parked_.size() - 2] : nullptr, true);
    parked_.pop_back();
  }
}

void CallStack::close_all(bool lost) {
  while (!frames_.empty()) pop(Slice::kEndUnknown, lost);
  close_parked(0);
}

size_t CallStack::floor() const {
  for (size_t i = frames_.size(); i > 0; --i) {
    if (frames_[i - 1].boundary()) return i - 1;
  }
  return 0;
}

size_t CallStack::find_function(uint32_t function, size_t floor) const {
  for (size_t i = frames_.size(); i > floor; --i) {
    if (frames_[i - 1].function == function) return i - 1;
  }
  return kNone;
}

void CallStack::root(const Landing& to, uint32_t flags) {
  Frame f;
  f.flags = flags;
  push(f, to);
}

void CallStack::call(const Landing& to, Addr site, Addr back, Frame::Kind kind, uint32_t flags) {
  Frame f;
  f.kind = kind;
  f.flags = flags;
  f.back = back;
  f.site = site;
  push(f, to);
}

// Leaves the frame on top for another function with the same caller.
void CallStack::replace(const Landing& to, uint32_t flags) {
  if (frames_.empty()) return root(to, flags);
  Frame next;
  next.kind = frames_.back().kind;
  next.back = frames_.back().back;
  next.site = frames_.back().site;
  next.guessed = frames_.back().guessed;
  next.flags = flags | (frames_.back().flags & (Slice::kAsync | Slice::kSyscall));
  pop();
  push(next, to);
}

// Restores parked frames, up to the one of this function, below the present ones.
bool CallStack::adopt(const Landing& to) {
  for (size_t i = parked_.size(); i > 0; --i) {
    if (parked_[i - 1].function != to.function) continue;
    close_parked(i);
    for (Frame& f : parked_) f.flags |= Slice::kAcrossGap;
    parked_.back().guessed = true;
    parked_.insert(parked_.end(), frames_.begin(), frames_.end());
    frames_ = std::move(parked_);
    parked_.clear();
    host_.adopted(*this, i);
    return true;
  }
  return false;
}

void CallStack::discover(const Landing& to) {
  const size_t above = frames_.size();
  if (!adopt(to)) {
    Frame f;
    f.function = to.function;
    f.flags = Slice::kBeganBefore;
    f.entry = 0;
    f.origin = to.origin;
    frames_.insert(frames_.begin(), f);
    host_.discovered(frames_.front(), frames_.size() > 1 ? &frames_[1] : nullptr);
    host_.adopted(*this, 1);
  }
  pop_to(frames_.size() - above, 0);
}

void CallStack::refute(const Landing& to) {
  const size_t lowest = floor();
  if (frames_[lowest].boundary()) {
    pop_to(lowest + 1, Slice::kEndUnknown);
    Frame f;
    f.flags = Slice::kUnbalanced;
    f.guessed = true;
    return push(f, to);
  }
  pop();
  lose_track(to, false);
}

// Later returns show which of the frames still exist.
void CallStack::lose_track(const Landing& to, bool lost) {
  if (!frames_.empty()) {
    if (!lost) host_.refuted();
    close_parked(0);
    parked_.swap(frames_);
  }
  if (!to.start && adopt(to)) return;
  root(to, to.start ? 0 : Slice::kBeganBefore);
}

void CallStack::ret(const Landing& to) {
  if (frames_.empty()) return root(to, Slice::kBeganBefore);
  const size_t lowest = floor();
  for (size_t i = frames_.size(); i > lowest; --i) {
    const Frame& f = frames_[i - 1];
    if (f.back != to.at || f.boundary()) continue;
    pop_to(i, Slice::kSkipped);
    return pop();
  }
  if (frames_.back().function == to.function) return;
  if (to.start) return replace(to, Slice::kTail);
  const size_t there = find_function(to.function, lowest);
  if (there != kNone) {
    pop_to(there + 2, Slice::kSkipped);
    return pop();
  }
  if (frames_.size() == 1 && frames_.back().back == 0) return discover(to);
  if (frames_.back().guessed && frames_.size() > lowest + 1) return refute(to);
  replace(to, Slice::kUnbalanced);
}

void CallStack::jump(const Landing& to) {
  if (frames_.empty()) return root(to, Slice::kBeganBefore);
  const Frame& top = frames_.back();
  if (top.function == to.function || functions_.return_thunk(to.function)) return;
  if (functions_.slot(to.function) && top.kind != Frame::Kind::kSlot) {
    return call(to, 0, 0, Frame::Kind::kSlot, 0);
  }
  if (top.kind == Frame::Kind::kSlot) {
    pop();
    if (frames_.empty()) return root(to, Slice::kBeganBefore);
    if (frames_.back().function == to.function) return;
    return jump(to);
  }
  if (functions_.jump_thunk(top.function)) {  // it represents the function it jumps to
    Frame& thunk = frames_.back();
    thunk.function = to.function;
    thunk.entry = to.at;
    thunk.origin = to.origin;
    return;
  }
  replace(to, Slice::kTail);
}

// After a far return: `left` was the boundary's frame, what was interrupted is on top again.
void CallStack::land(const Landing& to, const Frame& left, uint64_t size) {
  if (frames_.empty()) return root(to, Slice::kBeganBefore);
  if (left.back == to.at || frames_.back().function == to.function) return;
  if (is_kernel_address(left.back) != is_kernel_address(to.at) && left.kind == Frame::Kind::kAsync) {
    // The flow does not return to what was interrupted: something between them was lost.
    if (is_kernel_address(to.at)) return lose_track(to, false);
    while (!frames_.empty() && functions_.kernel(frames_.back().function)) pop(Slice::kEndUnknown);
    if (!frames_.empty() && frames_.back().function == to.function) return;
    const size_t there = find_function(to.function, floor());
    if (there == kNone) return lose_track(to, false);
    return pop_to(there + 1, Slice::kSkipped);
  }
  const bool in_slot = frames_.back().kind == Frame::Kind::kSlot;  // continues after the probed instruction
  if (in_slot || functions_.slot(to.function)) return jump(to);
  if (to.start && left.kind == Frame::Kind::kAsync && is_kernel_address(to.at)) {
    return call(to, left.back, left.back + size, Frame::Kind::kCall, Slice::kEmulated);
  }
  if (!is_kernel_address(to.at) && to.start)
    return call(to, 0, left.back, Frame::Kind::kCall, Slice::kSignal);
  const size_t there = find_function(to.function, floor());
  if (there != kNone) return pop_to(there + 1, Slice::kSkipped);
  // A system call other than the one before the loss.
  if ((left.flags & Slice::kAcrossGap) != 0) return lose_track(to, false);
  jump(to);
}

void CallStack::far_return(const Landing& to, uint64_t size) {
  const size_t at = floor();
  if (frames_.empty()) return root(to, Slice::kBeganBefore);
  // IRET to the next instruction, to synchronise: arch/x86/include/asm/sync_core.h.
  if (at + 1 < frames_.size() && frames_.back().function == to.function && frames_[at].back != to.at) return;
  if (!frames_[at].boundary()) return discover(to);
  const Frame left = frames_[at];
  if (at == 0) return discover(to);
  pop_to(at + 1, Slice::kSkipped);
  pop();
  land(to, left, size);
}

void CallStack::outside(Addr back) {
  Frame f;
  f.kind = Frame::Kind::kOutside;
  f.back = back;
  push(f, {functions_.untraced(), 0, kNoOrigin, false});
}

void CallStack::leave_function() {
  if (!frames_.empty() && !frames_.back().boundary()) pop();
  if (!frames_.empty()) outside(0);
}

void CallStack::leave_kernel() {
  while (!frames_.empty() && functions_.kernel(frames_.back().function)) pop();
  close_parked(0);
}

void CallStack::resume(const Landing& to, bool lost) {
  Addr back = 0;
  if (!frames_.empty() && frames_.back().kind == Frame::Kind::kOutside) {
    back = frames_.back().back;
    pop(0, lost);
  }
  // A function's first instruction was interrupted: that is no second call of it.
  if (!lost && back == to.at && !frames_.empty() && frames_.back().function == to.function) return;
  if (!frames_.empty() && frames_.back().function == to.function && !to.start) {
    if (lost) {
      for (Frame& f : frames_) f.flags |= Slice::kAcrossGap;
      frames_.back().guessed = true;
    }
    return;
  }
  if (!lost && !frames_.empty()) {
    const size_t there = find_function(to.function, 0);
    if (!to.start && there != kNone) return pop_to(there + 1, Slice::kSkipped);
    if (to.start) return call(to, 0, 0, Frame::Kind::kCall, Slice::kSignal);
  }
  lose_track(to, lost);
}

}  // namespace asof
