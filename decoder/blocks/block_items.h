// Events and gaps as records of a block stream have them (docs/formats.md); the step that they come before is not in it.
#pragma once
#include "arch/arch.h"
#include "decoder/blocks/block_format.h"

namespace asof::blocks {

// What they take at least.
inline constexpr size_t kEventBytes = 6, kGapBytes = 8;

// `last`: the time of the event before, 0 at first.
void put_event(Writer& out, const Event& event, Time& last);
// take_...() leave `in` failed where bytes are damaged.
Event take_event(Source& in, Time& last);
void put_gap(Writer& out, const Gap& gap);
Gap take_gap(Source& in);

}  // namespace asof::blocks
