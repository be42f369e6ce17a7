// A sync point's packets: A-Sync, Trace Info, and the address and context after them (Arm IHI 0064,
// "Synchronization").
#include <algorithm>

#include "arch/arm64/elements.h"

namespace asof::arm64 {
namespace {

// The time that the trace unit gives with a sync point may come after its address.
std::optional<uint64_t> timestamp_ahead(const uint8_t* p, const uint8_t* end, const PacketFormat& format) {
  constexpr int kPackets = 4;
  for (int i = 0; i < kPackets; ++i) {
    const Packet k = read_packet(p, end, format, 0);
    if (k.type == Pk::kTimestamp) return k.value != 0 ? std::optional(k.value) : std::nullopt;
    if (k.type != Pk::kContext && k.type != Pk::kAddress && k.type != Pk::kEvent &&
        k.type != Pk::kCycleCount && k.type != Pk::kTimestampMarker && k.type != Pk::kIgnore) {
      break;
    }
    p += k.size;
  }
  return std::nullopt;
}

}  // namespace

SyncGroup read_sync_group(std::span<const uint8_t> bytes, const PacketFormat& format) {
  SyncGroup g;
  const uint8_t* const begin = bytes.data();
  const uint8_t* const end = begin + bytes.size();
  const uint8_t* p = begin + std::min<size_t>(kAsyncSize, bytes.size());
  bool info = false, context = false, address = false, exception = false;
  for (;;) {
    const Packet k = read_packet(p, end, format, 0);
    const auto at = static_cast<uint32_t>(p - begin);
    p += k.size;
    g.size = static_cast<uint32_t>(p - begin);
    if (!info && k.type != Pk::kEnd) {  // packets without their Trace Info say nothing
      info = k.type == Pk::kTraceInfo;
      if (k.type == Pk::kAsync || k.type == Pk::kBad) return g;
      continue;
    }
    switch (k.type) {
      case Pk::kTimestamp:
        if (k.value != 0 && !g.timestamp) g.timestamp = k.value;
        break;
      case Pk::kContext:
      case Pk::kAddress:
        if (k.context.present) context = true;
        if (k.type == Pk::kAddress && !exception) {
          g.start_offset = at;
          address = true;
        }
        exception = exception && k.type == Pk::kContext;
        break;
      case Pk::kException:
        address = false;
        g.executed_before = true;
        exception = !k.no_address;
        break;
      case Pk::kAtoms:
      case Pk::kQ:
      case Pk::kSourceAddress:
      case Pk::kMispredict:
        address = false;
        g.executed_before = true;
        break;
      case Pk::kAsync:
      case Pk::kDiscard:
      case Pk::kOverflow:
      case Pk::kBad:
      case Pk::kEnd:
        return g;
      default:
        break;
    }
    if (address && context) {
      g.has_start = true;
      if (!g.timestamp) g.timestamp = timestamp_ahead(p, end, format);
      return g;
    }
  }
}

}  // namespace asof::arm64
