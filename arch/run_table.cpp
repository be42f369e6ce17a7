#include "arch/run_table.h"

#include <algorithm>

namespace asof {

RunTable::RunTable(RunId first) : pieces_(index_of(first) / kPiece), first_(first) {}

bool RunTable::Writer::take_piece() {
  const uint32_t piece = table_.pieces_.take();
  if (piece == kPieces) return false;
  next_ = std::max(index_of(table_.first_), piece * kPiece);
  end_ = (piece + 1) * kPiece;
  return true;
}

}  // namespace asof
