// The bytes that a capture has for an address, at any time and from any of its sources. What is missing there
// is "late text" in the truth: no decoder can know it.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "tools/board/guest_files.h"

namespace asof::board {

class KnownText {
 public:
  KnownText(const GuestFiles& files, std::span<const Poke> pokes);
  bool has(Addr address, std::span<const uint8_t> bytes) const;

 private:
  struct Piece {
    Addr address = 0;
    std::vector<uint8_t> bytes;
  };
  void add(Addr address, std::span<const uint8_t> bytes);
  bool byte(Addr address, uint8_t value) const;

  const GuestFiles& files_;
  std::vector<Piece> pieces_;
};

}  // namespace asof::board
