#include "tools/packets/packet_count.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "tools/output/json.h"

namespace asof {
namespace {

std::string row(PacketFormat::Kind kind, std::string_view name, uint64_t packets, uint64_t bytes,
                uint64_t all) {
  const double share = all == 0 ? 0 : 100.0 * static_cast<double>(bytes) / static_cast<double>(all);
  switch (kind) {
    case PacketFormat::Kind::kJson:
      return JsonLine("count").text("packet", name).number("packets", packets).number("bytes", bytes).end();
    case PacketFormat::Kind::kCsv:
      return fmt::format("{},{},{}\n", name, packets, bytes);
    default:
      return fmt::format("{:<20} {:>12} {:>14} {:>6.2f} %\n", name, packets, bytes, share);
  }
}

}  // namespace

// Most bytes first. Bytes that are lost are in no stream: they are not in the sum.
std::string PacketCount::table(std::span<const std::string_view> names, PacketFormat::Kind kind) const {
  std::vector<size_t> order(names.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::erase_if(order, [&](size_t i) { return packets_[i] == 0; });
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return bytes_[a] > bytes_[b]; });
  uint64_t packets = 0, bytes = 0;
  for (const size_t i : order) {
    if (i == kPacketLost) continue;
    packets += packets_[i];
    bytes += bytes_[i];
  }
  std::string out;
  if (kind == PacketFormat::Kind::kCsv) out = "packet,packets,bytes\n";
  if (kind == PacketFormat::Kind::kText)
    out = fmt::format("{:<20} {:>12} {:>14} {:>8}\n", "packet", "packets", "bytes", "share");
  for (const size_t i : order) {
    if (i == kPacketLost) continue;
    out += row(kind, names[i], packets_[i], bytes_[i], bytes);
  }
  if (kind == PacketFormat::Kind::kText) out += row(kind, "total", packets, bytes, bytes);
  if (packets_[kPacketLost] == 0) return out;
  if (kind != PacketFormat::Kind::kText)
    return out + row(kind, names[kPacketLost], packets_[kPacketLost], bytes_[kPacketLost], 0);
  return out + fmt::format("{:<20} {:>12} {:>14}  not in the trace\n", names[kPacketLost],
                           packets_[kPacketLost], bytes_[kPacketLost]);
}

}  // namespace asof
