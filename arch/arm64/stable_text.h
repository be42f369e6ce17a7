// StableText: blocks of the A64 text that is the same at all times, which is nearly all of it.
#pragma once
#include <cstddef>
#include <cstdint>

#include "arch/arch.h"
#include "arch/arena.h"
#include "arch/arm64/insn.h"
#include "textstore/text_store.h"

namespace asof::arm64 {

// Not thread-safe: one per decoder. Must not outlive its text.
class StableText {
 public:
  // `text_at`: kFirst, kLast: as if the text had been the same at all times as it was then. `wfx`: WFI and
  // WFE end blocks, as they take atoms.
  StableText(const TextStore& text, TextAt text_at, bool wfx) : text_(text), text_at_(text_at), wfx_(wfx) {}

  // What is at an address is known, and the same at all times.
  bool contains(Space space, Addr a) {
    if (space_ != space || !cell_.range.contains(a)) [[unlikely]]
      find_cell(space, a);
    return version_ != nullptr;
  }
  // The block at `ip`, a multiple of 4, and its last instruction if it may take an atom. Bytes that lie in
  // several cells are kept in `arena`. `b` need not have been made. False: there is none.
  bool read(Space space, Addr ip, Arena& arena, Block& b, Insn& last);

 private:
  void find_cell(Space space, Addr a);
  bool take(uint32_t word, Addr at, Insn& last) const;
  size_t read_across(Space space, Addr ip, size_t count, Arena& arena, const uint8_t*& bytes, Insn& last,
                     bool& unsure);
  size_t fetch(Space space, Addr a, uint8_t* out, bool& unsure);

  const TextStore& text_;
  const TextAt text_at_;
  const bool wfx_;
  // The cell of the last look into the text.
  Cell cell_;
  Space space_ = kNoSpace;
  const Version* version_ = nullptr;  // what is there whatever the time is; nullptr: it is not known
};

}  // namespace asof::arm64
