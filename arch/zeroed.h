// Zeroed memory that costs nothing before it is used: its pages come with the first touch. So a table may be
// as large as it could ever become, all in one place. It is mapped, not allocated: an allocator may give out used
// memory that it clears first, and AddressSanitizer marks all of an allocation, used or not.
//
// What lies behind the first kOrdinary bytes is asked for in huge pages: a virtual machine takes 5 to 12 us for the first
// touch of each page, and a huge page is touched first once where others are 512 times.
#pragma once
#include <cstddef>
#include <memory>
#include <type_traits>

namespace asof {

inline constexpr size_t kHugePage = size_t{2} << 20;

struct ZeroedFree {
  void* mapping = nullptr;
  size_t size = 0;  // bytes of `mapping`, in which the array lies
  void operator()(void*) const;
};
template <class T>
using ZeroedArray = std::unique_ptr<T[], ZeroedFree>;

struct ZeroedBytes {
  static constexpr size_t kOrdinary = size_t{256} << 10;

  void* at;
  ZeroedFree free;
};
// What follows the first `ordinary` bytes, a multiple of 64 KiB, begins with a huge page where `size` is at least half of
// one more. Throws std::bad_alloc.
ZeroedBytes zeroed_bytes(size_t size, size_t ordinary = ZeroedBytes::kOrdinary);

// `n` objects for which all bits 0 is a state. Throws std::bad_alloc.
template <class T>
ZeroedArray<T> zeroed_array(size_t n, size_t ordinary = ZeroedBytes::kOrdinary) {
  static_assert(std::is_trivially_destructible_v<T>);
  const ZeroedBytes bytes = zeroed_bytes(n * sizeof(T), ordinary);
  return {static_cast<T*>(bytes.at), bytes.free};
}

// Has the pages of memory of zeroed_array() there before they are used, all at once where the kernel can (Linux 5.14).
void populate(void* p, size_t size);

}  // namespace asof
