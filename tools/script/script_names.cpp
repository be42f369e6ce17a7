#include "tools/script/script_names.h"

#include <algorithm>

#include "decoder/perf/record_types.h"
#include "decoder/perf/records.h"

namespace asof {

ScriptNames::ScriptNames(const Capture& capture) : CodeNames(capture) {
  if (!capture.perf) return;
  capture.perf->for_each({perf::kMmap, perf::kMmap2}, [&](const Record& r) {
    const auto m = parse_mmap(r);
    if (m && m->executable && !is_kernel_address(m->addr))
      mappings_[m->pid].push_back({r.time(), range_of(m->addr, m->len), m->pgoff});
    return true;
  });
  for (auto& [pid, list] : mappings_) std::ranges::stable_sort(list, {}, &Mapping::from);
}

Addr ScriptNames::caller_address(int32_t pid, Addr a, Time t) const {
  if (is_kernel_address(a)) return a;
  const auto process = mappings_.find(pid);
  if (process == mappings_.end()) return a;
  const auto& list = process->second;
  constexpr int kMostLooked = 4096;  // of a process that maps without end, the latest
  int looked = 0;
  for (auto m = std::ranges::upper_bound(list, t, {}, &Mapping::from);
       m != list.begin() && looked < kMostLooked; ++looked) {
    --m;
    if (m->range.contains(a)) return a - m->range.begin + m->offset;
  }
  return a;
}

}  // namespace asof
