// Sets of address ranges: sorted, and joined where they touch.
#pragma once
#include <algorithm>
#include <utility>
#include <vector>

#include "textstore/address.h"

namespace asof {

inline std::vector<AddrRange> merged_ranges(std::vector<AddrRange> ranges) {
  std::ranges::sort(ranges, {}, &AddrRange::begin);
  std::vector<AddrRange> out;
  for (const AddrRange& range : ranges) {
    if (!out.empty() && range.begin <= out.back().end)
      out.back().end = std::max(out.back().end, range.end);
    else
      out.push_back(range);
  }
  return out;
}

// The parts of `range` that none of `holes` (of merged_ranges()) covers.
template <class Visit>
void each_uncovered(AddrRange range, const std::vector<AddrRange>& holes, Visit visit) {
  auto hole = std::ranges::upper_bound(holes, range.begin, {}, &AddrRange::end);
  for (; hole != holes.end() && hole->begin < range.end; ++hole) {
    if (range.begin < hole->begin) visit(AddrRange{range.begin, hole->begin});
    range.begin = std::max(range.begin, hole->end);
  }
  if (!range.empty()) visit(range);
}

}  // namespace asof
