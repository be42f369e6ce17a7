#include "textstore/text_source.h"

#include <algorithm>
#include <cstring>

namespace asof {

TextSource text_source(const Cell& cell, Addr a, TimeBounds during, std::span<const uint8_t> bytes) {
  TextSource found;
  found.versions = static_cast<uint32_t>(cell.versions.size());
  const size_t offset = a - cell.range.begin;
  const size_t size = std::min<uint64_t>(bytes.size(), cell.range.end - a);
  for (uint32_t i = 0; i < cell.versions.size(); ++i) {
    const Version& v = cell.versions[i];
    if (v.bytes == nullptr || std::memcmp(v.bytes + offset, bytes.data(), size) != 0) continue;
    const bool whole = v.from <= during.lo && v.until >= during.hi;
    if (found.version != 0 && !whole) continue;
    found.version = i + 1;
    found.origin = v.origin;
    if (whole) break;
  }
  return found;
}

TextSource text_source(const TextStore& store, Space space, Addr a, TimeBounds during,
                       std::span<const uint8_t> bytes) {
  return text_source(store.cell(space, a), a, during, bytes);
}

}  // namespace asof
