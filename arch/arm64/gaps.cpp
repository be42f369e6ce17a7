// Damage as data: gaps are opened where the flow is lost and closed where it goes on; work never stops for
// them.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "arch/arm64/flow.h"

namespace asof::arm64 {

void Flow::add_event(EventKind kind, Time time, Addr ip, uint64_t a, uint64_t b, uint64_t offset) {
  Event e;
  e.kind = kind;
  e.step = static_cast<uint32_t>(chunk_.steps.size());
  e.time = time;
  e.ip = ip;
  e.a = a;
  e.b = b;
  e.offset = segment_->begin + offset;
  chunk_.events.push_back(e);
}

// The gap that opens, to be told where it begins and why; nullptr: it is open already. Where the last gap
// ended right here, before any instruction, it is one gap: the first cause stays.
Gap* Flow::new_gap(State& s, Code code) {
  next_flags_ |= Step::kAfterGap;
  confidence_ = Confidence::kCertain;
  confidence_until_ = 0;
  if (gap_) return nullptr;
  const uint32_t step = static_cast<uint32_t>(chunk_.steps.size());
  if (!chunk_.gaps.empty() && chunk_.gaps.back().step == step && chunk_.gaps.back().code == code) {
    gap_ = std::move(chunk_.gaps.back());
    chunk_.gaps.pop_back();
    return nullptr;
  }
  Gap& g = gap_.emplace();
  g.step = step;
  g.code = code;
  g.ip = s.ip;
  g.time.lo = s.lo == kTimeMin ? s.floor : s.lo;
  return &g;
}

void Flow::close_gap(State& s, Addr resume_ip, uint64_t end) {
  if (!gap_) return;
  gap_->end = std::max(gap_->begin, segment_->begin + end);
  gap_->resume_ip = resume_ip;
  gap_->time.hi = s.floor;
  if (gap_->time.lo > gap_->time.hi) gap_->time.lo = gap_->time.hi;
  chunk_.gaps.push_back(std::move(*gap_));
  gap_.reset();
}

// What the trace says, for the reason of a gap.
std::string Flow::describe(const State& s) const {
  if (s.atom_count == 0) return "the trace has no atom";
  return (s.atoms & 1) != 0 ? "the trace has an E atom" : "the trace has an N atom";
}

// Takes back the steps that no packet has confirmed. Returns how many.
size_t Flow::roll_back() {
  const size_t n = chunk_.steps.size() - std::min(verified_steps_, chunk_.steps.size());
  chunk_.steps.truncate(chunk_.steps.size() - n);
  for (Event& e : chunk_.events) e.step = std::min(e.step, static_cast<uint32_t>(chunk_.steps.size()));
  return n;
}

void Flow::be_lost(State& s) {
  s.atom_count = 0;
  s.rets.lose();
  s.calls_missing = true;
  s.unsure = unsure_ == Unsure::kAlways;
  s.anchor_hi = kTimeMax;
  s.patch_return = 0;
  s.place = Place::kLost;
  s.node = nullptr;
}

// Gives away what can no longer change: steps that no packet has confirmed may still be taken back, and a gap
// right in front of them may grow.
void Flow::flush(bool last) {
  const size_t ready = last ? chunk_.steps.size() : verified_steps_;
  if (!last && ready == 0) return;
  Chunk rest;
  if (!last) {
    rest = sink_->spare();
    const auto now = [ready](const auto& x) { return x.step < ready; };
    const auto events = std::ranges::stable_partition(chunk_.events, now);
    const auto gaps = std::ranges::stable_partition(chunk_.gaps, now);
    chunk_.steps.split(ready, rest.steps);
    rest.events.assign(events.begin(), events.end());
    for (Gap& g : gaps) rest.gaps.push_back(std::move(g));
    for (Event& e : rest.events) e.step -= static_cast<uint32_t>(ready);
    for (Gap& g : rest.gaps) g.step -= static_cast<uint32_t>(ready);
    chunk_.events.resize(chunk_.events.size() - rest.events.size());
    chunk_.gaps.resize(chunk_.gaps.size() - rest.gaps.size());
  }
  verified_steps_ = 0;
  chunk_.stream = segment_->stream;
  chunk_.segment = segment_->index;
  chunk_.last = last;
  usual_times_ = chunk_.steps.times().size();
  sink_->take(std::exchange(chunk_, std::move(rest)));
}

}  // namespace asof::arm64
