#include "tools/script/code_of_blocks.h"

#include <algorithm>
#include <span>

namespace asof {

uint32_t CodeOfBlocks::add(const Block& b) {
  const std::span bytes(b.bytes, b.size), lengths(b.lengths, b.count);
  const auto [at, fresh] = known_.try_emplace(&b, static_cast<uint32_t>(pieces_.size()));
  // The address may be that of a block that is gone.
  const bool same = !fresh && pieces_[at->second].ip == b.ip &&
                    std::ranges::equal(pieces_[at->second].bytes, bytes) &&
                    std::ranges::equal(pieces_[at->second].lengths, lengths);
  if (!same) {
    at.value() = static_cast<uint32_t>(pieces_.size());
    pieces_.push_back({b.ip, {bytes.begin(), bytes.end()}, {lengths.begin(), lengths.end()}});
  }
  return at->second;
}

}  // namespace asof
