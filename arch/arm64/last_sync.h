// When a CPU last synchronised its context before a place in its trace.
//
// Changed words may go on running in their old form until the CPU's next context synchronisation event
// (exception entry or return, ISB). A segment does not know of those before it, so the trace in front of it
// is asked: exceptions and, in ETMv4, exception returns are packets, and need no text. Events that are not
// found (ISB, what a gap holds) would only make the answer later, so it is a lower bound.
#pragma once
#include <optional>

#include "arch/arm64/elements.h"
#include "arch/stream.h"
#include "arch/time_conversion.h"

namespace asof::arm64 {

// Not after the last context synchronisation event in front of offset `before`, without the clock's error;
// kTimeMin: none is known. `clock`: of the timestamps; without one, when the bytes were made is what counts.
Time last_sync_before(const Stream& stream, uint64_t before, const PacketFormat& format,
                      const std::optional<TimeConversion>& clock);

// When the bytes [begin, end) of the stream were made, as far as the records around them tell.
TimeBounds recorded_bounds(const Stream& stream, uint64_t begin, uint64_t end);

}  // namespace asof::arm64
