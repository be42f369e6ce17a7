// The walk where the flow is lost because no bytes are known: most of a trace whose text is incomplete. Atoms
// lead nowhere then, and an address in a hole of the text is where the same gap goes on. What is here is what
// element(), use of an atom and lose() do to the state one by one, without opening and closing the gap; it
// returns to the careful walk before everything else.
#include <algorithm>
#include <utility>

#include "arch/arm64/elements_plain.h"
#include "arch/arm64/flow.h"

namespace asof::arm64 {

struct Flow::LostTaker {
  using Take = ElementParser::Take;
  Flow& flow;
  State& s;
  // After an address, and no atom since: the gap ended at the first of them.
  bool arrived = false;
  Addr first = 0, last = 0;
  uint32_t first_offset = 0;
  Time first_floor = kTimeMin;

  [[gnu::always_inline]] Take atoms(uint32_t, uint32_t) {
    if (arrived) {
      s.ip = last;
      s.in_user = !is_kernel_address(last);
      s.calls_missing = true;
      s.anchor_hi = kTimeMax;
      s.patch_return = 0;
      arrived = false;
    }
    s.lo = s.floor;
    return Take::kOn;
  }
  [[gnu::always_inline]] Take address(Addr to, uint8_t, uint32_t offset) {
    if (!flow.in_hole(s, to)) return Take::kRefuse;
    if (!arrived) {
      first = to;
      first_offset = offset;
      first_floor = s.floor;
    }
    arrived = true;
    last = to;
    s.lo = s.floor;
    ++s.decisions;
    return Take::kOn;
  }
  [[gnu::always_inline]] void time(uint64_t counter, uint32_t number) {
    s.times_seen = number + 1;
    if (flow.has_clock_) s.floor = std::max(s.floor, flow.to_time(counter));
  }
  // The careful walk's state after an address.
  void arrive() {
    const Time floor = std::exchange(s.floor, first_floor);
    flow.close_gap(s, first, first_offset);
    s.floor = floor;
    flow.enter(s, last, kA64);
    s.fresh = true;
  }
};

// Nothing has ever been known to be at `ip`, where an instruction could be and whose space does not have
// to be asked for.
bool Flow::in_hole(const State& s, Addr ip) {
  const bool kernel = is_kernel_address(ip);
  if ((ip & 3) != 0 || (!kernel && !s.in_user)) return false;
  return holes_.contain(kernel ? kKernelSpace : s.user_space, ip);
}

void Flow::lost_walk(State& s) {
  using Take = ElementParser::Take;
  if (runs_ == nullptr || s.atom_count != 0 || !s.sf || gap_->code != Code::kNoBytes) return;
  LostTaker taker{*this, s};
  Take taken = Take::kOn;
  for (Element next; taken == Take::kOn && fast_listed(s, next);) {
    if (next.kind == El::kAtoms)
      taken = taker.atoms(0, 0);
    else if (next.kind == El::kAddress)
      taken = taker.address(next.value, next.isa, next.offset);
    else
      taker.time(next.value, next.time);
    if (taken != Take::kOn) break;
    elements_->drop_before(++s.e);
    const ElementParser::Passed passed = elements_->pass_plain(taker);
    s.e += passed.elements;
    taken = passed.last;
  }
  if (taker.arrived) taker.arrive();
}

}  // namespace asof::arm64
