// Times that go back inside a segment: hardware writes trace in order, so the buffer was full, and newer
// trace precedes older.
#pragma once
#include <cstdint>
#include <span>

#include "arch/x86/clock.h"

namespace asof::x86 {

// TSCs of CPUs differ by less, ns: threads move between CPUs.
inline constexpr Time kClocksDiffer = 1000;

// `packets` begins after a sync group that ended with `clock`. Is there a TSC packet of an earlier time than
// one in front of it? Not in a guest's trace, nor without a time conversion.
bool runs_back_inside(std::span<const uint8_t> packets, const Clock& clock);

}  // namespace asof::x86
