// Packets of ETMv3 and PTM, which OpenCSD reads; their meaning is in its words.
#pragma once
#include <memory>

#include "arch/arm64/config.h"
#include "arch/forked_packets.h"
#include "arch/packets.h"
#include "arch/stream.h"

namespace asof::arm64 {

// All that is given must outlive the result. nullptr: OpenCSD does not take this configuration.
// OpenCSD runs in children.
std::unique_ptr<PacketReader> list_reference_packets(const Stream& stream, const Source& source,
                                                     const Config& config);
// It runs in this process, which it may crash. What was lost is not listed.
std::unique_ptr<PacketReader> read_reference_packets(const Stream& stream, const Source& source,
                                                     const Config& config, const PacketStart& start,
                                                     const BeforePart& before);

}  // namespace asof::arm64
