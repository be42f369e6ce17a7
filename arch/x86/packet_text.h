// What an Intel PT packet says, field by field. Names: Intel SDM vol. 3, "Packet Definitions" (Intel PT).
#pragma once
#include <span>
#include <string_view>

#include "arch/packets.h"
#include "arch/x86/packet.h"

namespace asof::x86 {

std::span<const std::string_view> packet_names();

// Index of its name: in order of Pk, but the long TNT.
inline constexpr uint8_t kLongTnt = kFirstPacketType + static_cast<uint8_t>(Pk::kEnd);
inline uint8_t type_of(const Packet& k) {
  return k.type == Pk::kTnt && k.size > 1
             ? kLongTnt
             : static_cast<uint8_t>(kFirstPacketType + static_cast<uint8_t>(k.type));
}

// `bytes`: the packet's. `ip`: the last IP after it.
void describe_packet(const Packet& k, const uint8_t* bytes, Addr ip, PacketFields& out);

}  // namespace asof::x86
