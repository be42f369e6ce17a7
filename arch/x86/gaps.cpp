// Gaps (arch/walk/gaps.h): what only x86 does where one opens or closes.
#include <fmt/format.h>

#include <algorithm>

#include "arch/x86/flow.h"

namespace asof::x86 {

void Flow::after_gap(State& s) {
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

void Flow::lose_sync(State& s) {
  s.tnt_count = 0;
  s.rets.clear();
  s.calls_missing = true;
  s.lost = true;
  s.unsure = unsure_ == walk::Unsure::kAlways;
  s.node = nullptr;
  marked_steps_ = std::min(marked_steps_, chunk_.steps.size());
}

// Up to the next sync point nothing is certain.
void Flow::doubt() {
  confidence_ = Confidence::kAmbiguous;
  confidence_until_ = UINT64_MAX;
}

// Without TNT packets the flow ends at the next conditional branch or compressed return, wherever it is.
void Flow::lose_without_tnt(State& s, uint64_t at) {
  open_gap(s, Code::kNoTntPackets,
           "the trace has no TNT packets, which show the direction of conditional branches", at);
  verify();
  lose_sync(s);
}

}  // namespace asof::x86
