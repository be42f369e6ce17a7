// Numbers that states of a flow are compared by: equal where what they are made of is.
#pragma once
#include <cstdint>

#include "arch/block.h"

namespace asof::walk {

// One more field of a signature. No sum of fields: two states that differ in two places must not meet. Nor do
// equal fields cancel each other out.
constexpr uint64_t mix(uint64_t h, uint64_t field) {
  h = (h * kHashFactor ^ field) * kHashFactor;
  return (h ^ h >> 29) * 0xBF58476D1CE4E5B9ULL;
}

// The addresses of the first `count` instructions of `b` after those that make up `path`.
constexpr uint64_t extend_path(uint64_t path, const Block& b, uint32_t count) {
  if (count == b.count) return path * b.power + b.hash;
  Addr ip = b.ip;
  for (uint32_t i = 0; i < count; ip += b.lengths[i++]) path = path * kHashFactor + ip;
  return path;
}

}  // namespace asof::walk
