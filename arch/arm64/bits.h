#pragma once
#include <cstdint>

namespace asof::arm64 {

// Bits `high` to `low` of a word, both included, as Arm's manuals write them.
constexpr uint32_t bits(uint32_t word, unsigned high, unsigned low) {
  return (word >> low) & (high - low == 31 ? ~0U : (1U << (high - low + 1)) - 1);
}

}  // namespace asof::arm64
