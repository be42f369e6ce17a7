#include "tools/output/code_names.h"

#include "textstore/plain_text.h"

namespace asof {

CodeNames::CodeNames(const Capture& capture) : capture_(capture), epochs_(capture) {
  for (const CodeFile& f : capture.code.files)
    files_.push_back(absent_kernel_symbol(f).empty() ? plain_text(f.recorded) : "[kernel.kallsyms]");
}

std::string_view CodeNames::file_at(Space space, Addr a, Time t) const {
  const CodeMapping* best = nullptr;
  for (const CodeMapping& m : capture_.code.mappings) {
    if (m.space != space || !m.range.contains(a) || t < m.from || t > m.until) continue;
    if (best == nullptr || m.rank > best->rank || (m.rank == best->rank && m.from >= best->from)) best = &m;
  }
  return best == nullptr ? std::string_view("[unknown]") : std::string_view(files_[best->file]);
}

CodeName CodeNames::at(Space space, Addr a, Time t) {
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
  }
  return known.name;
}

}  // namespace asof
