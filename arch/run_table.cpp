#include "arch/run_table.h"

#include <algorithm>
#include <type_traits>

namespace asof {

RunTable::RunTable(RunId first)
    : pieces_(std::make_unique<ZeroedArray<Piece>[]>(kPieces)),
      first_(first),
      used_(index_of(first) / kPiece) {}

bool RunTable::Writer::take_piece() {
  const uint32_t piece = table_.used_.fetch_add(1, std::memory_order_relaxed);
  if (piece >= kPieces) {
    table_.used_.store(kPieces, std::memory_order_relaxed);
    return false;
  }
  static_assert(std::is_aggregate_v<Piece> && std::is_trivially_copyable_v<Piece>);
  table_.pieces_[piece] = unset_array<Piece>(1);
  next_ = std::max(index_of(table_.first_), piece * kPiece);
  end_ = (piece + 1) * kPiece;
  return true;
}

}  // namespace asof
