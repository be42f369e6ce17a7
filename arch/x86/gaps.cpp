// Damage as data: gaps are opened where the flow is lost and closed where it goes on; work never stops for
// them.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "arch/x86/flow.h"

namespace asof::x86 {

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

// Events that were to bind to a place, without one.
void Flow::report_bound_events(const State& s) {
  for (unsigned i = 0; i < s.pending.event_count; ++i) {
    const Event& e = s.pending.events[i];
    add_event(e.kind, e.time, 0, e.a, e.b, e.offset);
  }
}

// The gap that opens, to be told where it begins and why; nullptr: it is open already. Where the last gap
// ended right here, before any instruction, it is one gap: the first cause stays.
Gap* Flow::new_gap(State& s, Code code) {
  next_flags_ |= Step::kAfterGap;
  confidence_ = Confidence::kCertain;
  confidence_until_ = followed_until_ = 0;
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
  g.time.lo = s.lo == kTimeMin ? s.now : s.lo;
  return &g;
}

void Flow::close_gap(State& s, Addr resume_ip, uint64_t end) {
  if (!gap_) return;
  gap_->end = std::max(gap_->begin, segment_->begin + end);
  gap_->resume_ip = resume_ip;
  gap_->time.hi = s.now;
  if (gap_->time.lo > gap_->time.hi) gap_->time.lo = gap_->time.hi;
  chunk_.gaps.push_back(std::move(*gap_));
  gap_.reset();
  if (s.maybe_guest)
    doubt_guest(s);
  else if (overwritten_)
    doubt();
}

// What the trace says and what is pending, for the reason of a gap.
std::string Flow::describe(const State& s) const {
  if (s.tnt_count != 0) {
    return fmt::format("the trace has {} TNT bits, next {}", s.tnt_count, (s.tnt >> (s.tnt_count - 1)) & 1);
  }
  const Pending& d = s.pending;
  switch (d.kind) {
    case Pending::Kind::kTip:
      return fmt::format("the trace has a TIP to {:#x}", d.ip);
    case Pending::Kind::kGuest:
      return "the trace has a VM entry (PIP)";
    case Pending::Kind::kPgd:
      return "the trace has a TIP.PGD";
    case Pending::Kind::kPge:
      return fmt::format("the trace has a TIP.PGE at {:#x}", d.ip);
    case Pending::Kind::kAsync:
      return fmt::format("the trace has an asynchronous event at {:#x}", d.at);
    case Pending::Kind::kReach:
      return fmt::format("the trace has a FUP at {:#x}", d.at);
    case Pending::Kind::kEnd:
      return d.has_ip ? fmt::format("the next PSB+ is at {:#x}", d.ip)
                      : std::string("tracing is off at the next PSB+");
    case Pending::Kind::kPtwrite:
      return "the trace has a PTW";
    case Pending::Kind::kOverflow:
      return "the trace has an OVF";
    case Pending::Kind::kTimeBack:
      return "the trace goes on at an earlier time";
    case Pending::Kind::kBad:
      return "the trace is damaged";
    default:
      return "the trace ends";
  }
}

// Takes back the steps that no packet has confirmed. Returns how many.
size_t Flow::roll_back() {
  const size_t n = chunk_.steps.size() - std::min(verified_steps_, chunk_.steps.size());
  chunk_.steps.truncate(chunk_.steps.size() - n);
  wrmsr_steps_ = std::min(wrmsr_steps_, chunk_.steps.size());
  for (Event& e : chunk_.events) e.step = std::min(e.step, static_cast<uint32_t>(chunk_.steps.size()));
  return n;
}

void Flow::be_lost(State& s) {
  s.tnt_count = 0;
  s.rets.clear();
  s.calls_missing = true;
  s.lost = true;
  s.unsure = unsure_ == Unsure::kAlways;
  s.node = nullptr;
}

// Up to the next sync point nothing is certain.
void Flow::doubt() {
  confidence_ = Confidence::kAmbiguous;
  confidence_until_ = UINT64_MAX;
}

// Without TNT packets the flow ends at the next conditional branch or compressed return, wherever it is.
void Flow::lose_without_tnt(State& s, uint64_t at) {
  open_gap(s, Code::kNoTntPackets, "the trace has no TNT packets, which tell the way of conditional branches",
           at);
  verified_steps_ = chunk_.steps.size();
  be_lost(s);
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
  wrmsr_steps_ -= std::min(wrmsr_steps_, ready);
  verified_steps_ = 0;
  chunk_.stream = segment_->stream;
  chunk_.segment = segment_->index;
  chunk_.last = last;
  sink_->take(std::exchange(chunk_, std::move(rest)));
}

}  // namespace asof::x86
