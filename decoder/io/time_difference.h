// Differences of times that a file gives.
#pragma once
#include <algorithm>

#include "textstore/time.h"

namespace asof {

// a - b, at the most kTimeMax either way: times of damaged files are anything, and this one can be negated.
inline Time time_difference(Time a, Time b) {
  Time out = 0;
  if (__builtin_sub_overflow(a, b, &out)) out = a < b ? -kTimeMax : kTimeMax;
  return std::max(out, -kTimeMax);
}

}  // namespace asof
