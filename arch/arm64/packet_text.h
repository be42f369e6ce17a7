// What a packet of ETMv4 or ETE says, field by field. Names: Arm IHI 0064, "Instruction trace packets", and the ETE
// chapter of Arm DDI 0487.
#pragma once
#include <span>
#include <string_view>

#include "arch/arm64/packet.h"
#include "arch/packets.h"
#include "textstore/address.h"

namespace asof::arm64 {

std::span<const std::string_view> packet_names();

// Index of its name. Forms of a packet have names of their own.
uint8_t type_of(const Packet& k, uint8_t header);
// Of a name, which must exist.
uint8_t type_named(std::string_view name);

// What packets say together with those before them.
struct PacketState {
  struct Place {
    Addr address = 0;
    uint8_t isa = 0;
  };
  std::array<Place, 3> history{};  // of addresses, the last first
  uint64_t timestamp = 0;
  uint32_t cc_threshold = 0;
  ContextInfo context;

  void take(const Packet& k);
};

// `bytes`: the packet's. `s`: after it.
void describe_packet(const Packet& k, std::span<const uint8_t> bytes, const PacketFormat& f,
                     const PacketState& s, PacketFields& out);

}  // namespace asof::arm64
