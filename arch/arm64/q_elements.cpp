// Q elements (Arm IHI 0064, "Q element"): instructions ran, and the trace does not say which path they took
// except for what is certain.
#include <fmt/format.h>

#include "arch/arm64/flow.h"

namespace asof::arm64 {

// Where a Q element leads: its own address, or that of the address element after it. The trace goes on
// there.
const Element* Flow::q_target(const State& s, const Element& d) {
  if ((d.flags & Element::kHasAddress) != 0) return &d;
  constexpr size_t kBetween = 4;  // contexts, times, counts
  for (size_t i = s.e; i < s.e + kBetween && elements_->has(i); ++i) {
    const Element& next = (*elements_)[i];
    if (next.kind == El::kAddress) return &next;
    if (next.kind != El::kContext && next.kind != El::kTime && next.kind != El::kCycles) break;
  }
  return nullptr;
}

// Follows `left` instructions as far as their path is certain: over branches that are always taken, and over
// one at the end, which `to` decides. What is not followed stays in `left`.
template <bool Emit>
Flow::Stop Flow::follow_q(State& s, uint32_t& left, const Addr* to, Trial* trial) {
  while (left > 0) {
    Stop stop = idle<Emit>(s);
    if (stop != Stop::kGo) return stop;
    Variant* const v = text<Emit>(s, trial, stop);
    if (v == nullptr) return stop;
    const Block& b = v->block;
    if (v->waypoint == Waypoint::kTrap) return Stop::kGo;
    meet(s, v->block, trial);
    if (left < b.count) {
      emit<Emit>(s, *v, left, 0);
      for (uint32_t i = 0; i < left; ++i) s.ip += b.lengths[i];
      s.node = nullptr;
      left = 0;
      return Stop::kGo;
    }
    const bool branch = v->waypoint == Waypoint::kDirect || v->waypoint == Waypoint::kIndirect;
    const bool decided = v->waypoint == Waypoint::kDirect && !v->may_skip;
    if (branch && !decided && (left != b.count || to == nullptr)) {
      if (b.count > 1) emit<Emit>(s, *v, b.count - 1U, 0);
      left -= b.count - 1U;
      return Stop::kGo;
    }
    const bool taken = decided || (branch && *to != b.end());
    emit<Emit>(s, *v, b.count, taken ? Step::kTaken : 0);
    left -= b.count;
    if (v->waypoint == Waypoint::kSync || (taken && v->exception_return)) synchronise_by_text(s);
    s.ip = !taken ? b.end() : v->waypoint == Waypoint::kIndirect ? *to : b.target;
    if (taken && v->waypoint == Waypoint::kDirect) s.mode = v->target_mode;
    s.node = nullptr;
  }
  return Stop::kGo;
}

// A Q element (IHI 0064, "Q element"): instructions ran without elements of their own; an address follows,
// with or without their number. What the trace unit's return stack did meanwhile is not said.
template <bool Emit>
Flow::Stop Flow::on_q(State& s, const Element& d, Trial* trial) {
  s.lo = s.floor;
  ++s.e;
  if (s.position == Position::kWaiting || s.position == Position::kLost) {
    if (s.position == Position::kWaiting || (d.flags & Element::kHasAddress) == 0) return Stop::kGo;
    if constexpr (!Emit) return Stop::kOut;
  }
  if (s.position == Position::kTarget) pop_target<Emit>(s);
  const Element* const target = q_target(s, d);
  const Addr to = target == nullptr ? 0 : address_of(s, *target);
  const uint8_t mode = target == nullptr ? s.mode : mode_of(s, target->isa);
  const bool known_start = s.position == Position::kKnown;
  uint32_t left = d.type;
  if (known_start && (d.flags & Element::kCounted) != 0) {
    const Stop stop = follow_q<Emit>(s, left, target == nullptr ? nullptr : &to, trial);
    if (stop != Stop::kGo) {
      if (!Emit || s.position != Position::kLost) return stop;
      left = 1;  // the gap is open
    }
  }
  s.rets.clear();
  s.calls_missing = true;
  const bool followed =
      known_start && s.position == Position::kKnown && (d.flags & Element::kCounted) != 0 && left == 0;
  if (followed && target != nullptr && s.ip != to) {
    if constexpr (!Emit) return Stop::kContradiction;
    contradiction(s, Code::kSyncPointNotReached, [&] {
      return fmt::format("a Q element of {} instructions ends at {:#x}, the text leads to {:#x}", d.type, to,
                         s.ip);
    });
  } else if (!followed) {
    if constexpr (Emit) {
      lose(s, Code::kTraceContradictsText, [&] {
        return (d.flags & Element::kCounted) != 0
                   ? fmt::format(
                         "a Q element: the trace does not say which way the last {} of {} instructions went",
                         left, d.type)
                   : "a Q element without a count: instructions ran, and the trace does not say which";
      });
    }
    s.position = Position::kLost;
  }
  if ((d.flags & Element::kHasAddress) != 0) {
    if constexpr (Emit) close_gap(s, to, d.offset);
    if (s.position != Position::kKnown || s.mode != mode) enter(s, to, mode);
    s.fresh = true;
    place_known(s);
  } else if (!Emit && s.position == Position::kLost) {
    s.position = Position::kVector;
  }
  return used(s, trial);
}

template Flow::Stop Flow::on_q<true>(State&, const Element&, Trial*);
template Flow::Stop Flow::on_q<false>(State&, const Element&, Trial*);

}  // namespace asof::arm64
