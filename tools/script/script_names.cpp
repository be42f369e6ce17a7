#include "tools/script/script_names.h"

#include <algorithm>

#include "decoder/perf/record_types.h"
#include "decoder/perf/records.h"

namespace asof {

ScriptNames::ScriptNames(const Capture& capture) : capture_(capture), epochs_(capture.symbols) {
  if (!capture.perf) return;
  capture.perf->for_each({perf::kMmap, perf::kMmap2}, [&](const Record& r) {
    const auto m = parse_mmap(r);
    if (m && m->executable && !is_kernel_address(m->addr))
      mappings_[m->pid].push_back({r.time(), range_of(m->addr, m->len), m->pgoff});
    return true;
  });
  for (auto& [pid, list] : mappings_) std::ranges::stable_sort(list, {}, &Mapping::from);
}

std::string_view ScriptNames::file_at(Space space, Addr a, Time t) const {
  std::string_view found = "[unknown]";
  for (const CodeMapping& m : capture_.code.mappings) {
    if (m.space == space && m.range.contains(a) && t >= m.from && t <= m.until)
      found = capture_.code.files[m.file].recorded;
  }
  return found;
}

ScriptName ScriptNames::at(Space space, Addr a, Time t) {
  if (a == 0) return {};
  if (is_kernel_address(a)) space = kKernelSpace;
  if (known_.size() > kMostKnown) known_.clear();
  Known& known = known_[AddrKey{space, a}];
  if (t >= known.valid.lo && t <= known.valid.hi) return known.name;
  known.valid = epochs_.around(space, {a, a + 1}, t);
  known.name = {};
  if (const auto found = capture_.symbols.find(space, a, t)) {
    known.name = {found->symbol, found->offset, found->symbol->dso};
  } else {
    known.name.dso = file_at(space, a, t);
    known.valid = {t, t};  // files come and go as well
  }
  return known.name;
}

Addr ScriptNames::caller_address(int32_t pid, Addr a, Time t) const {
  if (is_kernel_address(a)) return a;
  const auto process = mappings_.find(pid);
  if (process == mappings_.end()) return a;
  const auto& list = process->second;
  for (auto m = std::ranges::upper_bound(list, t, {}, &Mapping::from); m != list.begin();) {
    --m;
    if (m->range.contains(a)) return a - m->range.begin + m->offset;
  }
  return a;
}

}  // namespace asof
