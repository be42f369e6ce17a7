// Arena: memory that is given out by counting up and comes back all at once.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "arch/pooled.h"

namespace asof {

// What was taken lives as long as the arena. Not thread-safe: each thread has its own.
class Arena {
 public:
  // Room for `n` objects that need no destruction; for none there is a place, too. Nothing is in it.
  template <class T>
  T* take(size_t n) {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= alignof(std::max_align_t));
    const size_t gap = -reinterpret_cast<uintptr_t>(next_) % alignof(T);
    const size_t bytes = n * sizeof(T);
    if (gap + bytes >= left_) [[unlikely]]
      return reinterpret_cast<T*>(take_chunk(bytes));
    std::byte* const at = next_ + gap;
    next_ = at + bytes;
    left_ -= gap + bytes;
    return reinterpret_cast<T*>(at);
  }

 private:
  static constexpr size_t kChunk = size_t{1} << 16;

  std::byte* take_chunk(size_t bytes) {
    const size_t size = std::max(bytes + 1, kChunk);
    auto* const chunk = static_cast<std::byte*>(chunks_.emplace_back(pooled(size)).get());
    next_ = chunk + bytes;
    left_ = size - bytes;
    return chunk;
  }

  std::vector<Pooled> chunks_;
  std::byte* next_ = nullptr;
  size_t left_ = 0;
};

}  // namespace asof
