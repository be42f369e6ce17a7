// CodeOfBlocks: blocks that ran, each once, for lines that are printed when their decoder may be gone.
#pragma once
#include <tsl/robin_map.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "arch/block.h"

namespace asof {

class CodeOfBlocks {
 public:
  struct Piece {
    Addr ip;
    std::vector<uint8_t> bytes, lengths;
  };
  uint32_t add(const Block& block);
  const Piece& at(uint32_t piece) const { return pieces_[piece]; }

 private:
  tsl::robin_map<const Block*, uint32_t> known_;
  std::deque<Piece> pieces_;
};

}  // namespace asof
