// What FlowReader asks of a step (flow_ops.h).
#pragma once
#include "decoder/calls/flow_ops.h"

namespace asof {

inline bool complete_step(const Step& s) { return s.count == s.block->count; }

inline bool taken(const Step& s) {
  return complete_step(s) && leaves_line(s.block->kind) &&
         (s.block->kind != BranchKind::kCond || (s.flags & Step::kTaken) != 0);
}

inline Addr last_instruction(const Step& s) {
  if (complete_step(s)) return s.block->end() - s.block->lengths[s.block->count - 1];
  Addr at = s.block->ip;
  for (uint32_t i = 0; i + 1 < s.count; ++i) at += s.block->lengths[i];
  return at;
}

}  // namespace asof
