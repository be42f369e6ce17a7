// The start of a trace that a ring buffer kept: its first bytes lie between two sync points.
#pragma once
#include "arch/arch.h"

namespace asof {

// No error: what comes before the first sync point of a buffer that was overwritten cannot be decoded by anyone.
// Where the whole stream has no sync point it is one.
inline bool is_ring_start(const Stream& stream, const Gap& gap) {
  return gap.code == Code::kNoSyncPoint && gap.begin == stream.begin() && gap.end > gap.begin &&
         gap.end < stream.end();
}

}  // namespace asof
