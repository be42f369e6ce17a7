// Zeroed memory that costs nothing before it is used: its pages come with the first touch. So a table may be
// as large as it could ever become, all in one place.
#pragma once
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

namespace asof {

template <class T>
struct ZeroedFree {
  void operator()(T* p) const { std::free(static_cast<void*>(p)); }
};
template <class T>
using ZeroedArray = std::unique_ptr<T[], ZeroedFree<T>>;

// `n` objects for which all bits 0 is a state. Throws std::bad_alloc.
template <class T>
ZeroedArray<T> zeroed_array(size_t n) {
  static_assert(alignof(T) <= alignof(std::max_align_t));
  ZeroedArray<T> array(static_cast<T*>(std::calloc(n, sizeof(T))));
  if (!array) throw std::bad_alloc();
  return array;
}

}  // namespace asof
