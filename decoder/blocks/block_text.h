// The versions of text that the instructions of a block had, and where they came from: what fields textver
// and textsrc of `asof decode` show.
#pragma once
#include <span>
#include <vector>

#include "arch/block.h"
#include "textstore/text_store.h"

namespace asof {

struct Capture;

// Instructions in a row of one version: its number in its cell, from 1; 0: the store does not have these
// bytes.
struct TextPiece {
  uint32_t instructions = 0;
  uint32_t version = 0;
  OriginRef origin = kNoOrigin;
  bool operator==(const TextPiece&) const = default;
};

// Not thread-safe.
class BlockTexts {
 public:
  explicit BlockTexts(const Capture& capture) : capture_(capture) {}
  // All of a block, in order. Valid until the next call.
  std::span<const TextPiece> of(const Block& block);

 private:
  void look_up(const Block& block);
  void add(const TextPiece& piece);

  const Capture& capture_;
  std::vector<TextPiece> pieces_;
  Cell cell_;  // the latest one
  Space space_ = kNoSpace;
};

}  // namespace asof
