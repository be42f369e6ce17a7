// Text with missing pieces.
#pragma once
#include "tests/support/sim_random.h"
#include "textstore/builder.h"

namespace asof::test {

// `l` without `holes` pieces of any size at any position.
inline void add_with_holes(Builder& b, const Layer& l, unsigned holes, SimRandom& random) {
  Addr at = l.range.begin;
  for (unsigned left = holes; left > 0; --left) {
    const uint64_t share = l.range.end - at;
    const Addr hole = at + random.below(share / left + 1);
    const uint64_t size = random.below((l.range.end - hole) / left + 1);
    Layer piece = l;
    piece.range = {at, hole};
    piece.bytes = l.bytes.subspan(at - l.range.begin, hole - at);
    if (!piece.range.empty()) b.add_layer(piece);
    at = hole + size;
  }
  Layer rest = l;
  rest.range = {at, l.range.end};
  rest.bytes = l.bytes.subspan(at - l.range.begin);
  if (!rest.range.empty()) b.add_layer(rest);
}

}  // namespace asof::test
