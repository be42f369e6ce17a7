// Splitting a stream at its sync points.
#pragma once
#include <memory>

#include "arch/arch.h"
#include "arch/x86/errata.h"

namespace asof::x86 {

// See Arch::segments(). All that is given must outlive the result.
std::unique_ptr<SegmentSource> split_stream(const Stream& stream, size_t stream_index, const Config& config,
                                            const Errata& errata, uint64_t from);

// A full TSC near stream offset `offset`, to extend the packets' 56 bits; 0: none is known.
uint64_t reference_at(const Stream& stream, uint64_t offset);

// Time of the first sync point in [from, to) that has one of the host; kTimeMin: none has.
Time first_time(const Stream& stream, uint64_t from, uint64_t to, const Config& config);

}  // namespace asof::x86
