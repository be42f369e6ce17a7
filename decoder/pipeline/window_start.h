// Where in a stream the segments of a window of time begin, found without reading what precedes them.
#pragma once
#include <cstdint>

#include "arch/arch.h"

namespace asof {

// Of the segments that begin at `start` or later: one begins there, and all before it end before `from`. Or `start`,
// because it is not far to the end, or they are not in order of time as far as that was looked at, or have no time.
// `near`: bytes that are read rather than searched.
uint64_t window_start(const Arch& arch, const Stream& stream, size_t index, uint64_t start, Time from,
                      uint64_t near = 1 << 20);

}  // namespace asof
