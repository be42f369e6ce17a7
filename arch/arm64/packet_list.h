// CoreSight trace packets for people: names as in Arm IHI 0064 and the ETE chapter of Arm DDI 0487, and what each says.
#pragma once
#include <memory>

#include "arch/arm64/config.h"
#include "arch/packets.h"
#include "arch/stream.h"

namespace asof::arm64 {

// `config` and `stream` must outlive the result. nullptr: not of ETMv4 or ETE.
std::unique_ptr<PacketReader> list_packets(const Stream& stream, const Source& source, const Config& config);

}  // namespace asof::arm64
