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

// Not thread-safe; one per decoder, which mostly decodes segments in order: what it saw of the segment before
// spares the search. The answer is the same with and without that.
class LastSync {
 public:
  // Not after the last context synchronisation event in front of offset `before`, without the clock's error;
  // kTimeMin: none is known. `clock`: of the timestamps; without one, when the bytes were made is what
  // counts.
  Time before(const Stream& stream, uint64_t before, const PacketFormat& format,
              const std::optional<TimeConversion>& clock);

  // A segment was walked to its end, [begin, end) of the stream with these bytes. `passed`: the timestamps in
  // front of its last exception or exception return, if it has one; kTimeMin if that has none.
  struct Walked {
    uint64_t begin = 0, end = 0;
    std::span<const uint8_t> bytes;
    bool has_clock = false;
    std::optional<Time> passed;
  };
  void walked(const Stream& stream, const Walked& segment);

 private:
  // The answer at one place.
  struct Known {
    const Stream* stream = nullptr;
    uint64_t at = 0;
    bool has_clock = false;
    Time time = kTimeMin;
    uint64_t passed_over = 0;  // bytes that were looked at in vain before it was found
  };
  Known known_;
};

// When the bytes [begin, end) of the stream were made, as far as the records around them show.
TimeBounds recorded_bounds(const Stream& stream, uint64_t begin, uint64_t end);

}  // namespace asof::arm64
