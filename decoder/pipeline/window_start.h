// Where in a stream the segments of a window of time begin, found without reading what precedes them.
#pragma once
#include <cstdint>

#include "arch/arch.h"

namespace asof {

// A segment begins there, and all before it end before `from`. 0: from the start of the stream, because it is short,
// or not in order of time as far as that was looked at, or has no time. `near`: bytes that are read rather than searched.
uint64_t window_start(const Arch& arch, const Stream& stream, size_t index, Time from,
                      uint64_t near = 1 << 20);

}  // namespace asof
