#include "arch/arm64/packet_list.h"

#include <algorithm>

#include "arch/arm64/packet_text.h"
#include "arch/packet_walk.h"

namespace asof::arm64 {
namespace {

class EtmPackets {
 public:
  static constexpr size_t kSyncSize = kAsyncSize;
  static constexpr size_t kRoom = 128;

  EtmPackets(const Source& source, const Config& config)
      : config_(config), format_(PacketFormat::of(source)) {}

  static std::span<const std::string_view> names() { return packet_names(); }
  static size_t find_sync(std::span<const uint8_t> bytes, size_t from) { return find_async(bytes, from); }

  // Everything is sent anew after an A-Sync.
  void sync(std::span<const uint8_t>, uint64_t) { state_ = {}; }
  static bool starts(std::span<const uint8_t>, size_t, uint64_t, bool) { return false; }
  ReadPacket read(const uint8_t* p, const uint8_t* end, bool last);
  static bool fits(const uint8_t*, size_t, const uint8_t*) { return false; }
  Time time() const { return now_; }
  void describe(PacketFields& out) const {
    if (packet_.size != 0) describe_packet(packet_, {at_, packet_.size}, format_, state_, out);
  }

 private:
  static uint32_t padding(const uint8_t* p, const uint8_t* end, bool last);

  const Config& config_;
  const PacketFormat format_;
  PacketState state_;
  Packet packet_;
  const uint8_t* at_ = nullptr;
  Time now_ = kTimeMin;
};

// Zero bytes fill up the end of a buffer, in front of the next one's A-Sync or of nothing.
uint32_t EtmPackets::padding(const uint8_t* p, const uint8_t* end, bool last) {
  const uint8_t* const data = std::find_if(p, end, [](uint8_t b) { return b != 0; });
  const auto zeros = static_cast<uint32_t>(data - p);
  constexpr uint32_t kOfSync = kAsyncSize - 1;
  if (data == end) return last ? zeros : zeros > kOfSync ? zeros - kOfSync : 0;
  return *data == 0x80 && zeros > kOfSync ? zeros - kOfSync : 0;
}

ReadPacket EtmPackets::read(const uint8_t* p, const uint8_t* end, bool last) {
  packet_ = read_packet(p, end, format_, state_.cc_threshold);
  at_ = p;
  if (packet_.type == Pk::kEnd || packet_.type == Pk::kBad) {
    const bool cut = packet_.type == Pk::kEnd;
    packet_.size = 0;
    const uint32_t zeros = padding(p, end, last);
    if (zeros != 0) return {.size = zeros, .type = kPacketPadding};
    return {.cut = cut};
  }
  state_.take(packet_);
  if (packet_.type == Pk::kTimestamp && config_.time && state_.timestamp != 0)
    now_ = config_.time->to_perf(state_.timestamp);
  return {.size = packet_.size, .type = type_of(packet_, *p)};
}

}  // namespace

std::unique_ptr<PacketReader> list_packets(const Stream& stream, const Source& source, const Config& config) {
  if (source.protocol != Protocol::kEtm4 && source.protocol != Protocol::kEte) return nullptr;
  return std::make_unique<PacketWalk<EtmPackets>>(stream, EtmPackets(source, config));
}

}  // namespace asof::arm64
