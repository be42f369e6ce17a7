#include "tools/profile/file_text.h"

#include <cstring>

namespace asof {

bool FileText::same(const Block& b) {
  const auto known = known_.find(&b);
  if (known != known_.end()) return known->second;
  const bool same = compare(b);
  known_.emplace(&b, same);
  return same;
}

bool FileText::compare(const Block& b) {
  const auto place = places_.place_of(b.space, b.ip, b.from != kTimeMin ? b.from : b.until);
  if (!place) return false;
  auto file = files_.find(place->file);
  if (file == files_.end()) {
    const auto elf = ElfImage::open(capture_.code.files[place->file].path);
    file = files_.emplace(place->file, elf ? *elf : nullptr).first;
  }
  if (file->second == nullptr) return false;
  for (const ElfSegment& s : file->second->segments()) {
    if (place->address < s.address || place->address - s.address >= s.bytes.size()) continue;
    const uint64_t at = place->address - s.address;
    return s.bytes.size() - at >= b.size && std::memcmp(&s.bytes[at], b.bytes, b.size) == 0;
  }
  return false;
}

}  // namespace asof
