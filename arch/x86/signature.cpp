// What two hypotheses are compared by: where they are, and what may come.
#include "arch/x86/flow.h"

namespace asof::x86 {

using walk::mix;

uint64_t Flow::position_signature(const State& s) const {
  const uint64_t h =
      mix(mix(s.rets.digest(), s.ip), s.tnt_count * 4 + (s.enabled ? 2 : 0) + (s.lost ? 1 : 0));
  return mix(h, static_cast<uint64_t>(s.p - begin_));
}

// Flows that have met at a place go on alike there, but what they may do later need not be the same: rules of
// the return stack, the process, the life that is kept to, and what visits say of time.
uint64_t Flow::state_signature(const State& s, uint64_t position) {
  uint64_t h = mix(position, s.rets.rules());
  h = mix(h, uint64_t{s.in_user ? s.user_space : kNoSpace} << 8U | s.mode);
  h = mix(h, s.life);
  h = mix(h, s.visits.poke_return);
  return mix(h, uint64_t{s.visits.pokes} << 33U | uint64_t{s.visits.syncs} << 1U |
                    (s.visits.pokes_uncounted ? 1U : 0U));
}

}  // namespace asof::x86
