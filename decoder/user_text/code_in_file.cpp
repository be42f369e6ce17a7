#include "decoder/user_text/code_in_file.h"

#include <cstdint>
#include <utility>

#include "decoder/io/address_ranges.h"

namespace asof {
namespace {

constexpr uint64_t kClose =
    64;  // the largest alignment of a section that is usual: what is between is padding
constexpr size_t kMostPieces = 64;  // linkers make one or two

// The executable sections within `segment`, from `at` on; those close to each other as one.
void add_code(const AddrRange& segment, const std::vector<AddrRange>& sections, size_t& at,
              std::vector<AddrRange>& out) {
  const size_t before = out.size();
  while (at < sections.size() && sections[at].end <= segment.begin) ++at;
  for (size_t i = at; i < sections.size() && sections[i].begin < segment.end; ++i) {
    const AddrRange part = sections[i].intersect(segment);
    if (out.size() != before && part.begin <= out.back().end + kClose)
      out.back().end = part.end;
    else
      out.push_back(part);
  }
  if (out.size() == before) out.push_back(segment);
}

}  // namespace

std::vector<AddrRange> code_in_file(const ElfImage& elf) {
  std::vector<AddrRange> segments, sections, out;
  for (const ElfSegment& s : elf.segments()) {
    if (s.executable && !s.bytes.empty()) segments.push_back(range_of(s.file_offset, s.bytes.size()));
  }
  for (const ElfImage::Section& s : elf.sections()) {
    if (s.executable && !s.bytes.empty()) sections.push_back(range_of(s.file_offset, s.bytes.size()));
  }
  segments = merged_ranges(std::move(segments));
  sections = merged_ranges(std::move(sections));
  size_t at = 0;
  for (const AddrRange& segment : segments) add_code(segment, sections, at, out);
  if (out.size() > kMostPieces) out = {{out.front().begin, out.back().end}};
  return out;
}

}  // namespace asof
