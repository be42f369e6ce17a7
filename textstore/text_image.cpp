#include "textstore/text_image.h"

#include <algorithm>
#include <cstring>

namespace asof {

const Version* version_at(const Cell& cell, Time t) {
  const Version* found = nullptr;
  for (const Version& v : cell.versions) {
    if (v.from <= t && v.until >= t && (found == nullptr || v.from >= found->from)) found = &v;
  }
  return found;
}

bool TextImage::known(size_t offset, size_t size) const {
  if (offset > origins.size() || size > origins.size() - offset) return false;
  return std::none_of(origins.begin() + static_cast<long>(offset),
                      origins.begin() + static_cast<long>(offset + size),
                      [](OriginRef o) { return o == kNoOrigin; });
}

TextImage image_at(std::span<const Cell> cells, AddrRange range, Time t) {
  TextImage image{range.begin, std::vector<uint8_t>(range.size()),
                  std::vector<OriginRef>(range.size(), kNoOrigin)};
  for (const Cell& cell : cells) {
    const AddrRange part = cell.range.intersect(range);
    const Version* v = version_at(cell, t);
    if (part.empty() || v == nullptr || v->bytes == nullptr) continue;
    std::memcpy(image.bytes.data() + (part.begin - range.begin), v->bytes + (part.begin - cell.range.begin),
                part.size());
    std::fill_n(image.origins.begin() + static_cast<long>(part.begin - range.begin), part.size(), v->origin);
  }
  return image;
}

bool same_bytes(const Version* a, const Version* b, size_t size) {
  const auto known = [](const Version* v) { return v != nullptr && v->bytes != nullptr; };
  if (!known(a) || !known(b)) return known(a) == known(b);
  return a->bytes == b->bytes || std::memcmp(a->bytes, b->bytes, size) == 0;
}

bool several_at(const Cell& cell, Time t) {
  const Version* first = nullptr;
  for (const Version& v : cell.possible_in({t, t})) {
    if (first != nullptr && !same_bytes(first, &v, cell.range.size())) return true;
    first = &v;
  }
  return false;
}

bool may_differ(const Cell& cell, Time t) {
  return several_at(cell, t) || std::ranges::any_of(cell.possible_in({t, t}), &Version::unsure);
}

std::vector<Time> change_times(std::span<const Cell> cells) {
  std::vector<Time> times;
  for (const Cell& cell : cells) {
    for (const Version& v : cell.versions) {
      if (v.from != kTimeMin) times.push_back(v.from);
    }
  }
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  return times;
}

}  // namespace asof
