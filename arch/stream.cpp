#include "arch/stream.h"

#include <algorithm>

#include "textstore/check.h"

namespace asof {

std::span<const uint8_t> Stream::bytes(uint64_t from, uint64_t to, std::vector<uint8_t>& scratch) const {
  ASOF_CHECK(from <= to);
  if (from == to) return {};
  auto it = std::upper_bound(pieces.begin(), pieces.end(), from,
                             [](uint64_t o, const StreamPiece& p) { return o < p.offset; });
  ASOF_CHECK(it != pieces.begin());
  --it;
  uint64_t skip = from - it->offset;
  uint64_t want = to - from;
  if (skip + want <= it->bytes.size()) return it->bytes.subspan(skip, want);
  scratch.clear();
  scratch.reserve(want);
  for (; want != 0; ++it, skip = 0) {
    ASOF_CHECK(it != pieces.end() && skip <= it->bytes.size());
    const auto part = it->bytes.subspan(skip, std::min<uint64_t>(want, it->bytes.size() - skip));
    scratch.insert(scratch.end(), part.begin(), part.end());
    want -= part.size();
  }
  return scratch;
}

const ContextChange* Stream::context_at(Time t) const {
  if (contexts.empty()) return nullptr;
  auto it = std::upper_bound(contexts.begin(), contexts.end(), t,
                             [](Time v, const ContextChange& c) { return v < c.time; });
  return it == contexts.begin() ? &*it : &*(it - 1);
}

}  // namespace asof
