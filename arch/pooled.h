// Memory that decoders use for their tables, and give back for the next decoder of the process: from the kernel each
// page would come cleared, at its first touch, which takes longer than to fill it. Much of it comes in huge pages (zeroed.h).
#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "arch/zeroed.h"

namespace asof {

// Gives back what pooled() gave.
struct PooledFree {
  size_t bytes = 0;
  void operator()(void* p) const;
};
using Pooled = std::unique_ptr<void, PooledFree>;

// Bytes from which on a piece is of a huge page, even the first one: so much is filled soon.
inline constexpr size_t kPooledAlone = size_t{256} << 10;

// With anything in it. Thread-safe. Throws std::bad_alloc.
Pooled pooled(size_t bytes);

// An array that grows by pieces, which never move: up to `kPieces` of them. Whoever takes a piece writes it before
// others hear of it.
template <class T, uint32_t kPieces>
class PieceTable {
 public:
  static_assert(std::is_trivially_destructible_v<T> && std::is_trivially_copyable_v<T>);

  // `first`: pieces below it do not exist.
  explicit PieceTable(uint32_t first = 0) : first_(first), used_(first), pieces_(zeroed_array<T*>(kPieces)) {}
  PieceTable(const PieceTable&) = delete;
  PieceTable& operator=(const PieceTable&) = delete;
  ~PieceTable() {
    const uint32_t used = std::min(used_.load(std::memory_order_relaxed), kPieces);
    for (uint32_t i = first_; i < used; ++i) {
      if (pieces_[i] != nullptr) PooledFree{sizeof(T)}(pieces_[i]);
    }
  }

  T& operator[](uint32_t piece) const { return *pieces_[piece]; }
  // Thread-safe. kPieces: all are taken.
  uint32_t take() {
    const uint32_t piece = used_.fetch_add(1, std::memory_order_relaxed);
    if (piece >= kPieces) {
      used_.store(kPieces, std::memory_order_relaxed);
      return kPieces;
    }
    pieces_[piece] = static_cast<T*>(pooled(sizeof(T)).release());
    return piece;
  }

 private:
  const uint32_t first_;
  std::atomic<uint32_t> used_;
  ZeroedArray<T*> pieces_;
};

}  // namespace asof
