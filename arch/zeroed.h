// Zeroed memory that costs nothing before it is used: its pages come with the first touch. So a table may be
// as large as it could ever become, all in one place. It is mapped, not allocated: an allocator may give out used
// memory that it clears first, and AddressSanitizer marks all of an allocation, used or not.
#pragma once
#include <sys/mman.h>

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>

namespace asof {

template <class T>
struct ZeroedFree {
  size_t size = 0;  // bytes
  void operator()(T* p) const { ::munmap(static_cast<void*>(p), size); }
};
template <class T>
using ZeroedArray = std::unique_ptr<T[], ZeroedFree<T>>;

// `n` objects for which all bits 0 is a state. Throws std::bad_alloc.
template <class T>
ZeroedArray<T> zeroed_array(size_t n) {
  static_assert(std::is_trivially_destructible_v<T>);
  const size_t size = n * sizeof(T);
  void* const p =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  return {static_cast<T*>(p), {size}};
}

// Has the pages of memory of zeroed_array() there before they are used, all at once where the kernel can (Linux 5.14).
inline void populate(void* p, size_t size) { ::madvise(p, size, MADV_POPULATE_WRITE); }

}  // namespace asof
