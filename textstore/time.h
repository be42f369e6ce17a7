// The one clock above arch/: perf's clock, signed nanoseconds. Raw counters (TSC, CNTVCT) stop at
// arch/*/clock.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>

namespace asof {

using Time = int64_t;
inline constexpr Time kTimeMin = std::numeric_limits<Time>::min();  // "always been so"
inline constexpr Time kTimeMax = std::numeric_limits<Time>::max();  // "never ends"

// An instruction's time is an interval, both ends included: executed not before lo, not after hi.
struct TimeBounds {
  Time lo = kTimeMin;
  Time hi = kTimeMax;

  bool operator==(const TimeBounds&) const = default;
};

constexpr Time saturating_add(Time t, Time d) {
  Time r = 0;
  if (t == kTimeMin || t == kTimeMax) return t;
  if (__builtin_add_overflow(t, d, &r)) return d > 0 ? kTimeMax : kTimeMin;
  return r;
}

// end - begin, as far as Time can say it: a damaged capture may say any times.
constexpr Time elapsed(Time begin, Time end) {
  Time t = 0;
  if (__builtin_sub_overflow(end, begin, &t)) return end > begin ? kTimeMax : kTimeMin;
  return t;
}

// Both ends moved out by the clock's error.
constexpr TimeBounds widen(TimeBounds b, Time error) {
  return {saturating_add(b.lo, -error), saturating_add(b.hi, error)};
}

}  // namespace asof
