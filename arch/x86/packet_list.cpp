#include "arch/x86/packet_list.h"

#include <array>

#include "arch/packet_walk.h"
#include "arch/x86/clock.h"
#include "arch/x86/packet_fetcher.h"
#include "arch/x86/packet_text.h"
#include "arch/x86/segments.h"
#include "arch/x86/sync_group.h"

namespace asof::x86 {
namespace {

class PtPackets {
 public:
  static constexpr size_t kSyncSize = kPsbSize;
  static constexpr size_t kRoom = 1024;  // a PSB+ with its PADs

  PtPackets(const Stream& stream, const Config& config)
      : stream_(stream), config_(config), errata_(errata_of(config.cpu)), clock_(config, 0) {}

  static std::span<const std::string_view> names() { return packet_names(); }
  static size_t find_sync(std::span<const uint8_t> bytes, size_t from) { return find_psb(bytes, from); }

  void sync(std::span<const uint8_t> bytes, uint64_t offset);
  bool starts(std::span<const uint8_t> bytes, size_t to_sync, uint64_t offset, bool restarted);
  [[gnu::always_inline]] ReadPacket read(const uint8_t* p, const uint8_t* end, bool) {
    packet_ = read_packet(errata_, p, end, block_bytes_);
    at_ = p;
    if (packet_.type == Pk::kEnd || packet_.type == Pk::kBad) return {.cut = packet_.type == Pk::kEnd};
    take();
    return {.size = packet_.size, .type = type_of(packet_)};
  }
  // The payload of a PTWRITE or BIP in front of a PSB may look like the PSB's beginning.
  static bool fits(const uint8_t* p, size_t size, const uint8_t* end) {
    return read_packet(p + size, end).type == Pk::kPsb;
  }
  Time time() const { return now_; }
  void describe(PacketFields& out) const { describe_packet(packet_, at_, ip_, out); }

 private:
  [[gnu::always_inline]] void take() {
    switch (packet_.type) {
      case Pk::kTip:
      case Pk::kPge:
      case Pk::kPgd:
      case Pk::kFup:
        update_ip(packet_.ipc, packet_.value, ip_);
        break;
      case Pk::kOvf:
        ip_ = 0;
        block_bytes_ = 0;
        break;
      case Pk::kTnt:
      case Pk::kPad:
        break;
      default:
        block_bytes_ = next_block_bytes(packet_, block_bytes_);
        // What the PSB+ says of time is known already.
        if (group_left_ < packet_.size && clock_.update(packet_)) set_time(clock_.now());
    }
    group_left_ -= std::min<size_t>(group_left_, packet_.size);
  }
  void set_time(Time t) {
    if (t != kTimeMin) now_ = t;
  }

  const Stream& stream_;
  const Config& config_;
  const Errata errata_;
  Clock clock_;
  Packet packet_;
  const uint8_t* at_ = nullptr;
  Addr ip_ = 0;            // the last one
  size_t group_left_ = 0;  // bytes of a PSB+ to come
  Time now_ = kTimeMin;
  uint8_t block_bytes_ = 0;
};

// As the flow does (Flow::decode()): nothing is carried over a sync point but a guest's time.
void PtPackets::sync(std::span<const uint8_t> bytes, uint64_t offset) {
  const SyncGroup g =
      read_sync_group(bytes, Clock(config_, reference_at(stream_, offset), errata_.skl168), errata_);
  clock_ = g.clock;
  if (g.guest) clock_.set_not_before(now_);
  set_time(clock_.now());
  group_left_ = g.size;
  ip_ = 0;
  block_bytes_ = 0;
}

// The kernel switched tracing on again; or there are only PADs and, before the first PSB of all, timing packets.
bool PtPackets::starts(std::span<const uint8_t> bytes, size_t to_sync, uint64_t offset, bool restarted) {
  clock_ = Clock(config_, reference_at(stream_, offset), errata_.skl168);
  ip_ = 0;
  block_bytes_ = 0;
  group_left_ = 0;
  if (restarted && read_start(bytes, clock_)) return true;
  const uint8_t* p = bytes.data();
  const uint8_t* const sync = p + to_sync;
  while (p < sync) {
    const Packet k = read_packet(p, sync);
    if (k.type != Pk::kPad && !(is_timing(k.type) && offset == 0)) return false;
    p += k.size;
  }
  return true;
}

}  // namespace

std::unique_ptr<PacketReader> list_packets(const Stream& stream, const Config& config) {
  return std::make_unique<PacketWalk<PtPackets>>(stream, PtPackets(stream, config));
}

}  // namespace asof::x86
