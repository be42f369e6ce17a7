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

// Of a cell of `size` bytes; unknown ones (also nullptr) equal each other alone.
bool same_bytes(const Version* a, const Version* b, size_t size);
// Are versions with other bytes possible at `t`?
bool several_at(const Cell& cell, Time t);
// The same, or may the bytes have changed without a record?
bool may_differ(const Cell& cell, Time t);

// Instants at which something in these cells changes, sorted: the beginnings of versions.
std::vector<Time> change_times(std::span<const Cell> cells);

}  // namespace asof
