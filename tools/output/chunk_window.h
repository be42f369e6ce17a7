// The part of a chunk that lies within a time: segments are decoded whole, and reach beyond what was asked for.
#pragma once
#include <optional>

#include "arch/arch.h"

namespace asof {

// As far as known, a part of it is.
inline bool is_within(const Gap& gap, const TimeBounds& time) {
  return gap.time.hi >= time.lo && gap.time.lo <= time.hi;
}

// Nothing if the whole chunk is. What has no time is kept, and a gap of which a part is within it. Blocks are shared
// with `chunk`.
std::optional<Chunk> chunk_within(const Chunk& chunk, const TimeBounds& time);

}  // namespace asof
