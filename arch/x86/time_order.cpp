#include "arch/x86/time_order.h"

#include <cstring>

namespace asof::x86 {
namespace {

constexpr uint8_t kTscHeader = 0x19;  // SDM vol. 3, "Timestamp Counter (TSC) Packet"
constexpr size_t kTscSize = 8;

// A byte of another packet may look like a TSC packet's header. What follows it is rarely near the time at
// hand: only if it is, and is earlier, are the packets worth a walk.
bool may_run_back(std::span<const uint8_t> packets, const Clock& clock) {
  constexpr Time kNear = Time{3600} * 1'000'000'000;
  const Time from = clock.now();
  Time latest = from;
  const uint8_t* const end = packets.data() + packets.size();
  for (const uint8_t* p = packets.data(); end - p >= static_cast<ptrdiff_t>(kTscSize); ++p) {
    p = static_cast<const uint8_t*>(std::memchr(p, kTscHeader, static_cast<size_t>(end - p)));
    if (p == nullptr || end - p < static_cast<ptrdiff_t>(kTscSize)) return false;
    Clock at = clock;
    at.update(read_packet(p, end));
    const Time t = at.now();
    if (t < saturating_add(from, -kNear) || t > saturating_add(from, kNear)) continue;
    if (t < saturating_add(latest, -kClocksDiffer)) return true;
    latest = std::max(latest, t);
  }
  return false;
}

}  // namespace

bool runs_back_inside(std::span<const uint8_t> packets, const Clock& clock) {
  if (!clock.has_time() || clock.guest() || !may_run_back(packets, clock)) return false;
  Clock at = clock;
  const uint8_t* p = packets.data();
  const uint8_t* const end = p + packets.size();
  uint8_t block_bytes = 0;
  for (;;) {
    const Packet k = read_packet(p, end, block_bytes);
    if (k.type == Pk::kEnd || k.type == Pk::kBad || k.type == Pk::kPsb) return false;
    const Time before = at.now();
    at.update(k);
    if (k.type == Pk::kTsc && !at.guest() && at.now() < saturating_add(before, -kClocksDiffer)) return true;
    block_bytes = next_block_bytes(k, block_bytes);
    p += k.size;
  }
}

}  // namespace asof::x86
