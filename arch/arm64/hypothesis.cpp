// What the choice between versions (arch/walk/hypothesis.h) asks of arm64: bounds of time, and text that no
// record has.
#include <algorithm>

#include "arch/arm64/flow.h"
#include "arch/walk/hypothesis_impl.h"
#include "arch/walk/text_impl.h"

namespace asof::arm64 {

// When the element in use ran: after the last timestamp before the one before it, and not after the
// first one after it.
TimeBounds Flow::bounds(const State& s) {
  TimeBounds b{s.lo == kTimeMin ? bounds_.lo : s.lo, bounds_.hi};
  if (has_clock_) {
    const auto next = elements_->timestamp(s.times_seen);
    b.hi = next ? to_time(*next) : kTimeMax;
  }
  if (b.hi < b.lo) std::swap(b.lo, b.hi);  // a clock that went backwards
  const TimeBounds anchored{std::max(b.lo, s.anchor_lo), std::min(b.hi, s.anchor_hi)};
  return widen(anchored.lo <= anchored.hi ? anchored : b, clock_error_);
}

// Which versions may run: arm64 changes branches and NOPs without synchronising other CPUs, and a CPU may go
// on with what it had until its next context synchronisation event after the change (Arm DDI 0487, B2.2.5).
// All sites of a key are so in doubt together, and each for itself.
TimeBounds Flow::text_bounds(const State& s) {
  TimeBounds b = bounds(s);
  const Time synced = s.synced == kTimeMin ? synced_before() : s.synced;
  b.lo = std::min(b.lo, saturating_add(synced, -clock_error_));
  return b;
}

// A kprobe's slot: a copy of the instruction under its BRK, then a BRK of its own, in a page whose content no
// record has. Only instructions that are no branches run from there, one at a time.
Variant* Flow::unrecorded_text(State& s, Node& node) {
  if (s.trap == 0 || s.atom_count != 0 || s.mode != kA64 || !is_kernel_address(s.ip) || !elements_->has(s.e))
    return nullptr;
  const Element& next = (*elements_)[s.e];
  if (next.kind != El::kException || next.value != s.ip + 4) return nullptr;
  const Cell cell = text_.cell(kKernelSpace, s.trap);
  const Version* original = nullptr;
  for (const Version& v : cell.versions) {
    if (v.bytes == nullptr || cell.range.end - s.trap < 4) continue;
    Insn insn;
    decode_insn({v.bytes + (s.trap - cell.range.begin), 4}, s.trap, kA64, false, insn);
    if (insn.waypoint != Waypoint::kNone) continue;
    original = &v;
  }
  if (original == nullptr) return nullptr;
  return cache_->synthetic(node, {original->bytes + (s.trap - cell.range.begin), 4}, original->origin);
}

void Flow::assume(State& s, const Hypothesis& h) const {
  const Time floor = s.floor;
  assume_text(s, h, clock_error_);
  s.assumed = s.assumed || floor < s.floor;
}

}  // namespace asof::arm64

namespace asof::walk {

template class Hypotheses<arm64::Flow, arm64::FlowTypes>;
template arm64::Variant* Hypotheses<arm64::Flow, arm64::FlowTypes>::text<true>(State&, Trial*, Stop&);
template Stop Hypotheses<arm64::Flow, arm64::FlowTypes>::idle<true>(State&);
template arm64::Variant* Hypotheses<arm64::Flow, arm64::FlowTypes>::text<false>(State&, Trial*, Stop&);
template Stop Hypotheses<arm64::Flow, arm64::FlowTypes>::idle<false>(State&);

}  // namespace asof::walk
