#include "tools/inject/mapped_text.h"

#include <algorithm>
#include <utility>

#include "decoder/io/address_ranges.h"
#include "decoder/perf/record_types.h"
#include "decoder/perf/records.h"

namespace asof {

MappedText::MappedText(const Capture& capture) : names_(capture) {
  capture.perf->for_each({perf::kMmap, perf::kMmap2}, [&](const Record& r) {
    const auto m = parse_mmap(r);
    if (m && is_kernel_address(m->addr)) kernel_.push_back(range_of(m->addr, m->len));
    return true;
  });
  kernel_ = merged_ranges(std::move(kernel_));
}

bool MappedText::has(Space space, Addr a, Time t) {
  if (a == 0) return false;
  if (is_kernel_address(a)) {
    const auto at = std::ranges::upper_bound(kernel_, a, {}, &AddrRange::end);
    return at != kernel_.end() && at->contains(a);
  }
  return names_.at(space, a, t).dso != ScriptName{}.dso;
}

}  // namespace asof
