// What an address range held at an instant.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "textstore/text_store.h"

namespace asof {

// The version of a cell to use for instant t: of those possible then, the one that began last.
const Version* version_at(const Cell& cell, Time t);

// Bytes of a range at instant t, and which of them are known.
struct TextImage {
  Addr begin = 0;
  std::vector<uint8_t> bytes;
  std::vector<OriginRef> origins;  // kNoOrigin: unknown byte
  bool known(size_t offset, size_t size) const;
};
TextImage image_at(std::span<const Cell> cells, AddrRange range, Time t);

// Whether the bytes do not have to be so at `t`: several versions are possible, or no record would show another
// one.
bool may_differ(const Cell& cell, Time t);

// Instants at which something in these cells changes, sorted: the beginnings of versions.
std::vector<Time> change_times(std::span<const Cell> cells);

}  // namespace asof
