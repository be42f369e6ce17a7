#include "decoder/blocks/block_text.h"

#include <cstring>

#include "decoder/blocks/block_file.h"
#include "decoder/model/capture.h"
#include "textstore/text_source.h"

namespace asof {

std::span<const TextPiece> BlockTexts::of(const Block& block) {
  pieces_.clear();
  if (capture_.blocks == nullptr) {
    look_up(block);
  } else if (const auto stored = capture_.blocks->text_of(block); !stored.empty()) {
    return stored;
  } else {
    pieces_.push_back({block.count, 1, block.origin});
  }
  return pieces_;
}

void BlockTexts::look_up(const Block& b) {
  uint32_t offset = 0;
  for (uint32_t i = 0; i < b.count; ++i) {
    const Addr ip = b.ip + offset;
    if (space_ != b.space || !cell_.range.contains(ip)) cell_ = capture_.text->cell(space_ = b.space, ip);
    const size_t rest = b.size - offset;
    // Nearly always the rest is of one cell, which never changes.
    if (cell_.stable() && cell_.versions[0].bytes != nullptr && rest <= cell_.range.end - ip &&
        std::memcmp(cell_.versions[0].bytes + (ip - cell_.range.begin), b.bytes + offset, rest) == 0) {
      return add({b.count - i, 1, cell_.versions[0].origin});
    }
    const TextSource source = text_source(cell_, ip, {b.from, b.until}, {b.bytes + offset, b.lengths[i]});
    add({1, source.version, source.version == 0 ? b.origin : source.origin});
    offset += b.lengths[i];
  }
}

void BlockTexts::add(const TextPiece& piece) {
  if (!pieces_.empty() && pieces_.back().version == piece.version && pieces_.back().origin == piece.origin) {
    pieces_.back().instructions += piece.instructions;
  } else {
    pieces_.push_back(piece);
  }
}

}  // namespace asof
