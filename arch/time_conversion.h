// TimeConversion: a hardware counter to perf's clock, as the perf event mmap page and PERF_RECORD_TIME_CONV
// give it (include/uapi/linux/perf_event.h, time_zero and cap_user_time_short).
#pragma once
#include <cstdint>

#include "textstore/time.h"

namespace asof {

// perf = zero + (counter * mult >> shift); x86: TSC, arm64: the virtual counter. With cap_short only the low
// bits of the counter (`mask`) count from `cycles` on.
struct TimeConversion {
  uint16_t shift = 0;
  uint32_t mult = 1;
  uint64_t zero = 0;
  uint64_t cycles = 0;
  uint64_t mask = ~0ULL;
  bool cap_short = false;

  Time to_perf(uint64_t counter) const {
    if (cap_short) counter = cycles + ((counter - cycles) & mask);
    const auto ns = static_cast<uint64_t>((static_cast<unsigned __int128>(counter) * mult) >> shift);
    return static_cast<Time>(zero + ns);
  }
};

}  // namespace asof
