#include "decoder/user_text/mapping_fit.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <span>

namespace asof {
namespace {

constexpr uint64_t kSmallestPage = 4096;

struct Pages {
  uint64_t size;
  uint64_t down(uint64_t n) const { return n & ~(size - 1); }
  uint64_t up(uint64_t n) const { return down(n + size - 1); }
};

uint64_t file_end(const ElfSegment& s) { return s.file_offset + s.bytes.size(); }

bool fits(const ElfImage& elf, AddrRange range, uint64_t pgoff, Pages pages) {
  const auto segments = elf.segments();
  const uint64_t end = pgoff + range.size();
  const ElfSegment& first = segments.front();
  Addr last = first.address;
  for (const ElfSegment& s : segments) last = std::max(last, s.address + s.mem_size);
  if (first.executable && pgoff == pages.down(first.file_offset) &&
      range.size() <= pages.up(last - pages.down(first.address)))
    return true;
  // Segments that follow each other in the file and in memory become one area.
  bool begins = false, ends = false;
  for (const ElfSegment& s : segments) {
    if (!s.executable) continue;
    const bool begins_in = pgoff >= pages.down(s.file_offset);
    const bool ends_in = end <= pages.up(file_end(s));
    if (begins_in && ends_in) return true;
    begins = begins || pgoff == pages.down(s.file_offset);
    ends = ends || end == pages.up(file_end(s));
  }
  return begins && ends;
}

// Of the segment in which the mapping begins.
bool is_where_linked(const ElfImage& elf, AddrRange range, uint64_t pgoff) {
  return std::ranges::any_of(elf.segments(), [&](const ElfSegment& s) {
    const Addr moved = range.begin - pgoff - (s.address - s.file_offset);
    return elf.type() == ET_EXEC ? moved == 0 : moved % kSmallestPage == 0;
  });
}

}  // namespace

bool can_be_mapped(const ElfImage& elf, AddrRange range, uint64_t pgoff) {
  if (elf.segments().empty()) return true;
  // Kernels for arm64 are built for three sizes.
  constexpr std::array kPages{Pages{kSmallestPage}, Pages{16384}, Pages{65536}};
  const size_t sizes = elf.machine() == EM_AARCH64 ? kPages.size() : 1;
  return is_where_linked(elf, range, pgoff) &&
         std::any_of(kPages.begin(), kPages.begin() + sizes,
                     [&](Pages pages) { return fits(elf, range, pgoff, pages); });
}

}  // namespace asof
