// What two hypotheses are compared by: where they are, and what may come.
#include "arch/arm64/flow.h"

namespace asof::arm64 {

using walk::mix;

uint64_t Flow::position_signature(const State& s) const {
  const uint64_t where = s.position == Position::kKnown ? s.ip : static_cast<uint64_t>(s.position);
  return mix(mix(mix(s.rets.digest(), where), s.atom_count), s.e);
}

// Flows that have met at a place go on alike there, but what they may do later need not be the same: what
// returns prove, the process, a kprobe's slot, the branch to a target, and what visits say of time.
uint64_t Flow::state_signature(const State& s, uint64_t position) {
  uint64_t h = mix(position, s.rets.rules());
  h = mix(h, uint64_t{s.in_user ? s.user_space : kNoSpace} << 8U | s.mode);
  h = mix(h, s.trap);
  h = mix(h, s.branch == nullptr ? 0 : s.branch->block.ip);
  h = mix(h, s.patch_return);
  return mix(h, uint64_t{s.patch_visits} << 1U | (s.patch_uncounted ? 1U : 0U));
}

}  // namespace asof::arm64
