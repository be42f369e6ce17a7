#include "tools/inject/mapped_text.h"

#include <algorithm>

#include "decoder/perf/record_types.h"
#include "decoder/perf/records.h"

namespace asof {

MappedText::MappedText(const Capture& capture) : names_(capture) {
  capture.perf->for_each({perf::kMmap, perf::kMmap2}, [&](const Record& r) {
    const auto m = parse_mmap(r);
    if (m && is_kernel_address(m->addr)) kernel_.push_back(range_of(m->addr, m->len));
    return true;
  });
}

bool MappedText::has(Space space, Addr a, Time t) {
  if (a == 0) return false;
  if (is_kernel_address(a))
    return std::ranges::any_of(kernel_, [a](const AddrRange& r) { return r.contains(a); });
  return names_.at(space, a, t).dso != ScriptName{}.dso;
}

}  // namespace asof
