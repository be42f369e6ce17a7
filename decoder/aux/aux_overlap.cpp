#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "decoder/aux/aux_streams.h"

namespace asof {
namespace {

constexpr std::array<uint8_t, 16> kPsb = {0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82,
                                          0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82};

bool is_psb(std::span<const uint8_t> bytes, size_t at) {
  return bytes.size() - at >= kPsb.size() && std::memcmp(bytes.data() + at, kPsb.data(), kPsb.size()) == 0;
}

std::optional<size_t> first_psb(std::span<const uint8_t> bytes) {
  const void* hit = ::memmem(bytes.data(), bytes.size(), kPsb.data(), kPsb.size());
  if (hit == nullptr) return std::nullopt;
  return static_cast<size_t>(static_cast<const uint8_t*>(hit) - bytes.data());
}

// Odd, so that multiplying loses nothing; any will do, a hit is compared byte by byte.
constexpr uint64_t kFactor = 0x9E3779B97F4A7C15ULL;

}  // namespace

// Looks for the longest end of `earlier` that starts with a PSB and is also what `later` has from its first
// PSB on. Both hashes grow by one byte a step, so the time is linear even where a ring holds nothing but
// PSBs.
std::optional<size_t> find_overlap(std::span<const uint8_t> earlier, std::span<const uint8_t> later) {
  constexpr int kMaxFalseHits = 16;
  const auto sync = first_psb(later);
  if (!sync) return std::nullopt;
  const auto start = later.subspan(*sync);
  const size_t limit = std::min(earlier.size(), start.size());
  std::vector<size_t> hits;  // lengths, ascending
  uint64_t end_hash = 0, start_hash = 0, power = 1;
  for (size_t length = 1; length <= limit; ++length) {
    const size_t at = earlier.size() - length;
    end_hash += earlier[at] * power;
    power *= kFactor;
    start_hash = start_hash * kFactor + start[length - 1];
    if (end_hash == start_hash && length >= kMinOverlap && is_psb(earlier, at)) hits.push_back(length);
  }
  int false_hits = 0;
  for (auto it = hits.rbegin(); it != hits.rend() && false_hits < kMaxFalseHits; ++it, ++false_hits) {
    if (std::memcmp(earlier.data() + (earlier.size() - *it), start.data(), *it) == 0) return *sync + *it;
  }
  return std::nullopt;
}

}  // namespace asof
