// Splitting a stream at its sync points.
#pragma once
#include <memory>

#include "arch/arch.h"
#include "arch/arm64/config.h"

namespace asof::arm64 {

// See Arch::segments(). All that is given must outlive the result.
std::unique_ptr<SegmentSource> split_stream(const Stream& stream, size_t stream_index, const Config& config,
                                            uint64_t from);

}  // namespace asof::arm64
