// What is found without reading packets: their format, from the trace unit's registers, and where sync points are.
#include <algorithm>

#include "arch/arm64/packet.h"
#include "arch/arm64/packet_reader.h"

namespace asof::arm64 {

PacketFormat PacketFormat::of(const Source& s) {
  PacketFormat f;
  f.ete = s.protocol == Protocol::kEte;
  f.m_profile = s.m_profile;
  const uint32_t minor = bits(s.idr1, 7, 4), major = bits(s.idr1, 11, 8);
  f.version = static_cast<uint8_t>(f.ete ? 0x50 | bits(s.devarch, 19, 16) : major << 4 | minor);
  if (!f.ete && major == 0xf) f.version = static_cast<uint8_t>(0x40 | bits(s.devarch, 19, 16));
  f.commit_opt = bits(s.idr0, 29, 29) != 0;
  f.conditional = bits(s.idr0, 6, 6) != 0 && bits(s.configr, 10, 8) != 0;
  f.q = bits(s.idr0, 16, 15) != 0;
  f.data = bits(s.configr, 17, 16) != 0;
  const uint32_t vmid = bits(s.idr2, 14, 10), cid = bits(s.idr2, 9, 5);
  f.vmid_bytes = vmid == 1 ? 1 : vmid == 2 ? 2 : vmid >= 4 ? 4 : 0;
  f.cid_bytes = cid >= 4 ? 4 : 0;
  f.cycle_bits = static_cast<uint8_t>(std::min(12U + bits(s.idr2, 28, 25), 20U));
  f.max_spec = static_cast<uint8_t>(std::min(s.idr8, 255U));
  return f;
}

// One byte in eleven is looked at: a sync point that starts in front of one that is not zero lies wholly in
// front of it.
size_t find_async(std::span<const uint8_t> bytes, size_t from) {
  constexpr size_t kZeros = kAsyncSize - 1;
  for (size_t at = from; at + kAsyncSize <= bytes.size();) {
    const size_t last = at + kZeros - 1;
    if (bytes[last] != 0) {
      at = last + 1;
      continue;
    }
    size_t first = last, end = last + 1;
    while (first > at && bytes[first - 1] == 0) --first;
    while (end < bytes.size() && bytes[end] == 0) ++end;
    if (end < bytes.size() && end - first >= kZeros && bytes[end] == 0x80) return end - kZeros;
    at = end + 1;
  }
  return SIZE_MAX;
}

}  // namespace asof::arm64
