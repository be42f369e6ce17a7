// The words that an arm64 kernel patches into its text, and the sites it is built to patch. Encodings: Arm
// DDI 0487; writers: arch/arm64/kernel/{jump_label,ftrace}.c.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "textstore/address.h"

namespace asof::arm64 {

inline constexpr uint32_t kNop = 0xd503201f;
inline constexpr uint32_t kMovX9Lr = 0xaa1e03e9;  // mov x9, x30: the first word of an ftrace site
inline constexpr uint32_t kBtiC = 0xd503245f;

using Word = std::array<uint8_t, 4>;  // in memory order, which is little-endian for code in every case

constexpr Word word_bytes(uint32_t word) {
  return {static_cast<uint8_t>(word), static_cast<uint8_t>(word >> 8U), static_cast<uint8_t>(word >> 16U),
          static_cast<uint8_t>(word >> 24U)};
}
constexpr uint32_t word_at(std::span<const uint8_t> bytes, size_t at = 0) {
  return bytes[at] | static_cast<uint32_t>(bytes[at + 1]) << 8U |
         static_cast<uint32_t>(bytes[at + 2]) << 16U | static_cast<uint32_t>(bytes[at + 3]) << 24U;
}

// B or BL; nullopt where the target is no word's address or beyond 128 MiB.
constexpr std::optional<uint32_t> branch_word(Addr from, Addr to, bool link) {
  const auto distance = static_cast<int64_t>(to - from);
  if (distance % 4 != 0 || distance < -(1 << 27) || distance >= (1 << 27)) return std::nullopt;
  return (link ? 0x94000000U : 0x14000000U) | (static_cast<uint32_t>(distance >> 2) & 0x3ffffffU);
}

// struct jump_entry: two offsets, each relative to its own address.
struct JumpEntry {
  Addr code = 0, target = 0;
};
constexpr JumpEntry jump_entry_at(Addr entry, int32_t code, int32_t target) {
  return {entry + static_cast<uint64_t>(int64_t{code}), entry + 4 + static_cast<uint64_t>(int64_t{target})};
}
inline constexpr uint64_t kJumpEntrySize = 16;

}  // namespace asof::arm64
