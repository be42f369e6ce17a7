// Addresses and half-open address ranges. One meaning everywhere: `begin` is in the range, `end` is not.
#pragma once
#include <algorithm>
#include <cstdint>

namespace asof {

using Addr = uint64_t;

// An address space: the kernel's, or one process image (a new one after each exec).
using Space = uint32_t;
inline constexpr Space kKernelSpace = 0;
inline constexpr Space kNoSpace = UINT32_MAX;

// Canonical upper half. x86-64 and arm64 (TTBR1) agree that bit 63 set means kernel.
constexpr bool is_kernel_address(Addr a) { return (a >> 63) != 0; }

struct AddrRange {
  Addr begin = 0;
  Addr end = 0;

  constexpr bool empty() const { return begin >= end; }
  constexpr uint64_t size() const { return empty() ? 0 : end - begin; }
  constexpr bool contains(Addr a) const { return a >= begin && a < end; }
  constexpr bool contains(const AddrRange& r) const { return r.begin >= begin && r.end <= end; }
  constexpr bool overlaps(const AddrRange& r) const { return begin < r.end && r.begin < end; }
  constexpr AddrRange intersect(const AddrRange& r) const {
    return {std::max(begin, r.begin), std::min(end, r.end)};
  }
  bool operator==(const AddrRange&) const = default;
};

// [begin, begin+size), cut at the top of the address space instead of wrapping.
constexpr AddrRange range_of(Addr begin, uint64_t size) {
  return {begin, size > UINT64_MAX - begin ? UINT64_MAX : begin + size};
}

}  // namespace asof
