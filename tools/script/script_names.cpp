#include "tools/script/script_names.h"

#include <algorithm>

#include "decoder/perf/record_types.h"
#include "decoder/perf/records.h"
#include "textstore/plain_text.h"

namespace asof {

ScriptNames::ScriptNames(const Capture& capture) : capture_(capture), epochs_(capture.symbols) {
  for (const CodeFile& f : capture.code.files)
    files_.push_back(absent_kernel_symbol(f).empty() ? plain_text(f.recorded) : "[kernel.kallsyms]");
  if (!capture.perf) return;
  capture.perf->for_each({perf::kMmap, perf::kMmap2}, [&](const Record& r) {
    const auto m = parse_mmap(r);
    if (m && m->executable && !is_kernel_address(m->addr))
      mappings_[m->pid].push_back({r.time(), range_of(m->addr, m->len), m->pgoff});
    return true;
  });
  for (auto& [pid, list] : mappings_) std::ranges::stable_sort(list, {}, &Mapping::from);
}

std::string_view ScriptNames::file_at(Space space, Addr a, Time t, TimeBounds& valid) const {
  const CodeMapping* best = nullptr;
  for (const CodeMapping& m : capture_.code.mappings) {
    if (m.space != space || !m.range.contains(a)) continue;
    if (t < m.from) {
      valid.hi = std::min(valid.hi, m.from - 1);
    } else if (t > m.until) {
      valid.lo = std::max(valid.lo, m.until + 1);
    } else {
      valid = {std::max(valid.lo, m.from), std::min(valid.hi, m.until)};
      if (best == nullptr || m.rank > best->rank || (m.rank == best->rank && m.from >= best->from)) best = &m;
    }
  }
  return best == nullptr ? std::string_view("[unknown]") : std::string_view(files_[best->file]);
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
    known.name.dso = file_at(space, a, t, known.valid);
  }
  return known.name;
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
