// What FlowReader asks of a step (flow_ops.h).
#pragma once
#include "decoder/calls/flow_ops.h"

namespace asof {

inline Addr last_instruction(const Step& s) {
  if (is_complete(s)) return s.block->end() - s.block->lengths[s.block->count - 1];
  Addr at = s.block->ip;
  for (uint32_t i = 0; i + 1 < s.count; ++i) at += s.block->lengths[i];
  return at;
}

}  // namespace asof
