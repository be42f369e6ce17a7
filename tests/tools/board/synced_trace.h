// Trace of Intel PT that is nothing but sync points at chosen places, for tests of where a trace lies.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "tests/support/bytes.h"

namespace asof::test {

inline void put_psb(ByteSink& s, std::optional<uint64_t> tsc) {
  for (int i = 0; i < 8; ++i) s.u8(2), s.u8(0x82);
  if (!tsc) return;
  s.u8(0x19);
  for (unsigned i = 0; i < 7; ++i) s.u8(static_cast<uint8_t>(*tsc >> (8 * i)));
}

// Trace of `size` bytes with a PSB at each place; the time of a PSB is 1000 + its place.
inline std::vector<uint8_t> synced_trace(size_t size, const std::vector<size_t>& psbs, bool timed = true) {
  ByteSink s;
  for (const size_t at : psbs) {
    while (s.size() < at) s.u8(0x06);  // TNT
    put_psb(s, timed ? std::optional<uint64_t>(1000 + at) : std::nullopt);
  }
  while (s.size() < size) s.u8(0x06);
  return s.bytes();
}

}  // namespace asof::test
