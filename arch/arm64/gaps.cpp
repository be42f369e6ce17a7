// Gaps (arch/walk/gaps.h): what only arm64 does where one opens.
#include "arch/arm64/flow.h"

namespace asof::arm64 {

// What the trace says, for the reason of a gap.
std::string Flow::describe(const State& s) const {
  if (s.atom_count == 0) return "the trace has no atom";
  return (s.atoms & 1) != 0 ? "the trace has an E atom" : "the trace has an N atom";
}

void Flow::lose_sync(State& s) {
  s.atom_count = 0;
  s.rets.lose();
  s.calls_missing = true;
  s.unsure = unsure_ == walk::Unsure::kAlways;
  s.anchor_hi = kTimeMax;
  s.patch_return = 0;
  s.position = Position::kLost;
  s.node = nullptr;
}

}  // namespace asof::arm64
