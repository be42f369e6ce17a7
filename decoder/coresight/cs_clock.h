// The relation between CoreSight timestamps and perf's clock, derived from the capture itself where no record
// gives it. The trace that an AUX record hands over was made before the record was written and after the one
// before: each timestamp next to such a border bounds the line "time = rate * counter + offset" from one
// side.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "arch/time_conversion.h"
#include "decoder/coresight/cs_perf.h"
#include "textstore/time.h"

namespace asof {

// The counter showed `counter` at an instant not before (lower) or not after (upper) `time`.
struct ClockBound {
  uint64_t counter = 0;
  Time time = 0;
  bool upper = false;
};

// Bounds from the first and the last timestamp of every piece of ETMv4 and ETE trace, or of about `most` pieces
// of each stream. Timestamps of 0 do not count: the counter did not run.
std::vector<ClockBound> clock_bounds(const CsStreams& streams, size_t most = SIZE_MAX);

// Is a conversion excluded by these bounds? By how much at the least, in ns; > 0: its times are too late. A few bounds may
// be wrong, where the kernel or the file is.
std::optional<Time> contradiction(const TimeConversion& time, std::span<const ClockBound> bounds);

struct FittedClock {
  TimeConversion conversion;
  Time error = 0;  // at most, for counters between the first and last bound
};
// The middle line of all that satisfy every bound. nullopt: there is none, so the timestamps are of another
// clock, or of one that does not run evenly; or the bounds leave more open than a twentieth of the time.
std::optional<FittedClock> fit_clock(std::span<const ClockBound> bounds);

}  // namespace asof
