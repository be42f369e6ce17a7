// `asof packets --count`: how many packets of each type, and how many bytes of trace they are.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "arch/packets.h"
#include "tools/packets/packet_style.h"

namespace asof {

class PacketCount {
 public:
  void add(const TracePacket& k) {
    ++packets_[k.type];
    bytes_[k.type] += k.size;
  }
  std::span<const uint64_t> packets() const { return packets_; }
  uint64_t bytes_of(uint8_t type) const { return bytes_[type]; }
  std::string table(std::span<const std::string_view> names, PacketFormat::Kind kind) const;

 private:
  std::array<uint64_t, 256> packets_{}, bytes_{};
};

}  // namespace asof
