#include "decoder/lines/dwarf_lines.h"

#include <dwarf.h>
#include <elfutils/libdw.h>

#include "decoder/lines/dwarf_file.h"
#include "decoder/lines/dwarf_units.h"

namespace asof {

struct DwarfLines::Impl {
  explicit Impl(std::unique_ptr<DwarfFile> opened)
      : file(std::move(opened)),
        units(file->dwarf()),
        split(file->descriptor()),
        inlines(file->dwarf(), split) {}

  std::unique_ptr<DwarfFile> file;
  DwarfUnits units;
  DwarfSplit split;
  DwarfInlines inlines;

  DwarfLine find(uint64_t address);
  DwarfLine line_in(Dwarf_Off unit, uint64_t address);
  std::vector<InlinedCall> functions_at(uint64_t address);
  void each_line(const std::function<void(std::string_view, uint32_t)>& take);
};

DwarfLines::DwarfLines(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DwarfLines::~DwarfLines() = default;

Result<std::unique_ptr<DwarfLines>> DwarfLines::open(const std::string& path) {
  auto file = DwarfFile::open(path);
  if (!file) return std::unexpected(file.error());
  auto impl = std::make_unique<Impl>(*std::move(file));
  if (impl->units.none())
    return fail(Code::kNoDebugInfo, path, Error::kNoOffset, "it has no debug information");
  return std::unique_ptr<DwarfLines>(new DwarfLines(std::move(impl)));
}

DwarfLine DwarfLines::Impl::line_in(Dwarf_Off unit, uint64_t address) {
  Dwarf_Die die;
  if (dwarf_offdie(file->dwarf(), unit, &die) == nullptr || !units.affordable(die)) return {};
  Dwarf_Line* row = dwarf_getsrc_die(&die, address);
  DwarfLine out;
  int number = 0, column = 0;
  if (row == nullptr || dwarf_lineno(row, &number) != 0 || number <= 0) return {};
  const char* path = dwarf_linesrc(row, nullptr, nullptr);
  if (path == nullptr) return {};
  out.file = path;
  out.line = static_cast<uint32_t>(number);
  if (dwarf_linecol(row, &column) == 0 && column > 0) out.column = static_cast<uint32_t>(column);
  return out;
}

DwarfLine DwarfLines::Impl::find(uint64_t address) {
  DwarfLine out;
  units.covering(address, [&](Dwarf_Off unit) {
    out = line_in(unit, address);
    return out.line != 0;
  });
  return out;
}

// Files of calls are in the unit's table of lines, whose rows are counted.
std::vector<InlinedCall> DwarfLines::Impl::functions_at(uint64_t address) {
  std::vector<InlinedCall> out;
  units.covering(address, [&](Dwarf_Off unit) {
    Dwarf_Die die;
    if (dwarf_offdie(file->dwarf(), unit, &die) == nullptr) return false;
    if (dwarf_hasattr(&die, DW_AT_stmt_list) == 0 || units.affordable(die)) out = inlines.at(unit, address);
    return !out.empty();
  });
  if (std::string why = inlines.take_problem(); !why.empty()) units.complain(std::move(why));
  return out;
}

DwarfLine DwarfLines::find(uint64_t address) {
  const DwarfLine found = impl_->find(address);
  if (found.line != 0 || !impl_->units.lines_unread()) return found;
  impl_->units.add_ranges_of_lines();
  return impl_->find(address);
}

// A row that ends a sequence has no code.
void DwarfLines::Impl::each_line(const std::function<void(std::string_view, uint32_t)>& take) {
  for (const Dwarf_Off unit : units.all()) {
    Dwarf_Die die;
    Dwarf_Lines* lines = nullptr;
    size_t count = 0;
    if (dwarf_offdie(file->dwarf(), unit, &die) == nullptr || !units.affordable(die) ||
        dwarf_getsrclines(&die, &lines, &count) != 0)
      continue;
    Dwarf_Addr at = 0, next = 0;
    for (size_t i = 0; i < count; ++i) {
      Dwarf_Line* row = dwarf_onesrcline(lines, i);
      bool last = true;
      int number = 0;
      if (dwarf_lineendsequence(row, &last) != 0 || last || dwarf_lineno(row, &number) != 0 || number <= 0)
        continue;
      // Of several rows of one address the last one counts.
      if (i + 1 < count && dwarf_lineaddr(row, &at) == 0 &&
          dwarf_lineaddr(dwarf_onesrcline(lines, i + 1), &next) == 0 && next == at)
        continue;
      if (const char* path = dwarf_linesrc(row, nullptr, nullptr)) take(path, static_cast<uint32_t>(number));
    }
  }
}

std::vector<DwarfFunction> DwarfLines::functions() {
  Impl& impl = *impl_;
  std::vector<DwarfFunction> out;
  for (const Dwarf_Off unit : impl.units.all()) {
    Dwarf_Die die;
    if (dwarf_offdie(impl.file->dwarf(), unit, &die) == nullptr || !impl.units.affordable(die)) continue;
    impl.inlines.each_function(unit, [&](const DwarfFunction& f) { out.push_back(f); });
  }
  if (std::string why = impl.inlines.take_problem(); !why.empty()) impl.units.complain(std::move(why));
  return out;
}

void DwarfLines::each_line(const std::function<void(std::string_view, uint32_t)>& take) {
  impl_->each_line(take);
}

std::vector<InlinedCall> DwarfLines::functions_at(uint64_t address) {
  find(address);  // units without ranges of their own
  return impl_->functions_at(address);
}

const std::vector<std::pair<std::string, uint64_t>>& DwarfLines::module_functions() const {
  return impl_->file->module().functions;
}

std::string DwarfLines::take_problem() { return impl_->units.take_problem(); }
std::string DwarfLines::take_split_problem() { return impl_->split.take_problem(); }

}  // namespace asof
