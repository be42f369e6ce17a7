#include "decoder/calls/timeline_window.h"

#include <algorithm>
#include <utility>

#include "decoder/calls/call_span.h"

namespace asof {

void BlockHolder::time(size_t stream, Time t) {
  Stream& s = streams_[stream];
  if (t > s.begin) s.later = std::min(s.later, t);
  if (!s.held.empty() && t > s.held.front().begin) give(s, t);
}

void BlockHolder::begun(size_t stream, Time t) {
  streams_[stream].begin = t;
  streams_[stream].later = kTimeMax;
}

void BlockHolder::add(const BlockSlice& block) {
  Stream& s = streams_[block.stream];
  if (!s.held.empty() && (block.begin != s.held.front().begin || s.held.size() >= kMost))
    give(s, block.begin != s.held.front().begin ? block.begin : kTimeMax);
  BlockSlice& b = s.held.emplace_back(block);
  if (const Addr to = std::exchange(s.led, 0); to != 0 && b.piece.taken && b.piece.to == 0) b.piece.to = to;
  if (const Time end = s.later != kTimeMax ? s.later : b.end; end > b.begin) give(s, end);
}

void BlockHolder::finish(size_t stream, Time until) {
  Stream& s = streams_[stream];
  if (s.held.empty()) return;
  give(s, until == kTimeMax ? kTimeMax : std::max(until, s.held.front().begin));
}

void BlockHolder::give(Stream& s, Time end) {
  for (BlockSlice& b : s.held) {
    b.end = end;
    b.id = next_id_++;
    b.instructions = instructions_;
    instructions_ += b.piece.lengths.size();
    to_.block(b);
  }
  s.held.clear();
}

// False: wholly outside.
template <class T>
bool WindowSink::clip(T& s) const {
  if (s.end < window_.lo || s.begin > window_.hi) return false;
  if (s.begin < window_.lo) {
    s.begin = window_.lo;
    s.flags |= Slice::kClippedBegin;
  }
  if (s.end > window_.hi) {
    s.end = window_.hi;
    s.flags |= Slice::kClippedEnd;
  }
  return true;
}

void WindowSink::slice(const Slice& s) {
  Slice clipped = s;
  if (!clip(clipped)) return;
  ++slices_;
  to_.slice(clipped);
}

// Only without a window.
void WindowSink::sum(const CallSums& sums, uint32_t track, uint64_t parent) {
  slices_ += sums.span.calls;
  to_.sum(sums, track, parent);
}

void WindowSink::run(const RunSlice& r) {
  RunSlice clipped = r;
  if (clip(clipped)) to_.run(clipped);
}

void WindowSink::gap(const GapSlice& g) {
  GapSlice clipped = g;
  if (!clip(clipped)) return;
  if (g.begin <= counted_.hi && g.end >= counted_.lo) ++gaps_;
  to_.gap(clipped);
}

void WindowSink::event(const EventMark& e) {
  if (contains(e.event.time)) to_.event(e);
}

void WindowSink::poke(const PokeSlice& p) {
  if (!contains(p.time)) return;
  PokeSlice clipped = p;
  clipped.begin = std::max(p.begin, window_.lo);
  clipped.end = std::min(p.end, window_.hi);
  to_.poke(clipped);
}

// When text came and went stays unchanged, also where that was before or after.
void WindowSink::lifetime(const LifetimeSlice& l) {
  if (l.begin <= window_.hi && l.end >= window_.lo) to_.lifetime(l);
}

void WindowSink::counter(const CounterPoint& p) {
  const bool version = p.kind == CounterPoint::Kind::kTextVersion;
  if (version && p.time < window_.lo) {
    version_before_ = true;
    version_ = p;
    return;
  }
  if (version) finish();
  // The last point of a rate only ends it.
  if (!version && p.time > window_.hi) {
    CounterPoint end = p;
    end.time = window_.hi;
    return to_.counter(end);
  }
  if (contains(p.time)) to_.counter(p);
}

void WindowSink::finish() {
  if (!std::exchange(version_before_, false)) return;
  version_.time = window_.lo;
  to_.counter(version_);
}

}  // namespace asof
