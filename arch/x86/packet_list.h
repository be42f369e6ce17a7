// Intel PT packets for people: names as in the SDM, and what each says.
#pragma once
#include <memory>

#include "arch/packets.h"
#include "arch/stream.h"
#include "arch/x86/config.h"

namespace asof::x86 {

// `config` and `stream` must outlive the result.
std::unique_ptr<PacketReader> list_packets(const Stream& stream, const Config& config);

}  // namespace asof::x86
