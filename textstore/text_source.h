// Which version of its cell some bytes were, and where they came from.
#pragma once
#include <cstdint>
#include <span>

#include "textstore/text_store.h"

namespace asof {

struct TextSource {
  uint32_t version = 0;  // ordinal in the cell, from 1; 0: not found
  uint32_t versions = 0;
  OriginRef origin = kNoOrigin;
};

// The version of the cell at `a` that has these bytes throughout `during`; failing that, one that has these
// bytes.
TextSource text_source(const TextStore& store, Space space, Addr a, TimeBounds during,
                       std::span<const uint8_t> bytes);
// The same; `a` is in the cell.
TextSource text_source(const Cell& cell, Addr a, TimeBounds during, std::span<const uint8_t> bytes);

}  // namespace asof
