// What two hypotheses are compared by: where they are, what may come, which way they came.
#include "arch/arm64/flow.h"

namespace asof::arm64 {

uint64_t Flow::signature(const State& s) const {
  const uint64_t where = s.place == Place::kKnown ? s.ip : static_cast<uint64_t>(s.place);
  uint64_t h = mix_hash(where + kHashFactor) ^ s.rets.digest();
  h = mix_hash(h + s.atom_count * kHashFactor);
  return mix_hash(h + s.e * kHashFactor);
}

// Flows that have met at a place go on alike there, but what they may do later need not be the same: what
// returns prove, the process, a kprobe's slot, the branch to a target, and what visits say of time.
uint64_t Flow::future(const State& s, uint64_t signature) {
  uint64_t h = mix_hash(signature + s.rets.rules() * kHashFactor);
  h = mix_hash(h + (s.in_user ? s.user_space : kNoSpace) * kHashFactor + s.mode);
  h = mix_hash(h + s.trap * kHashFactor);
  h = mix_hash(h + (s.branch == nullptr ? 0 : s.branch->block.ip) * kHashFactor);
  h = mix_hash(h + s.patch_return * kHashFactor);
  return mix_hash(h + uint64_t{s.patch_visits} * 2 + (s.patch_uncounted ? 1 : 0));
}

}  // namespace asof::arm64
