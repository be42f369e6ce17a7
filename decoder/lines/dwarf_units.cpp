#include "decoder/lines/dwarf_units.h"

#include <dwarf.h>
#include <fmt/format.h>

#include "decoder/lines/dwarf_file.h"

namespace asof {
namespace {

// The largest real files are browsers and kernels with all options on: a few million ranges, and some ten
// million rows for all code that ever ran of them.
constexpr size_t kMostRanges = size_t{1} << 24U;
constexpr size_t kMostUnits = size_t{1} << 20U;
constexpr uint64_t kMostRows = uint64_t{1} << 25U;

}  // namespace

// False: the unit has none.
bool DwarfUnits::add_ranges(Dwarf_Die& die) {
  Dwarf_Addr base = 0, begin = 0, end = 0;
  bool any = false;
  for (ptrdiff_t at = 0; (at = dwarf_ranges(&die, at, &base, &begin, &end)) != 0;) {
    if (at < 0) {
      complain(libdw_reason());
      break;
    }
    if (units_.size() >= kMostRanges) {
      complain(fmt::format("more than {} ranges of code", kMostRanges));
      break;
    }
    any = any || begin < end;
    if (begin < end) units_.push_back({begin, end, 0, dwarf_dieoffset(&die)});
  }
  return any;
}

// For units that do not say where their code is, or not for all of it: DWARF 2 cannot express several ranges.
// By their lines.
void DwarfUnits::add_ranges_of_lines() {
  for (const Dwarf_Off offset : std::exchange(without_ranges_, {})) {
    Dwarf_Die die;
    Dwarf_Lines* lines = nullptr;
    size_t count = 0;
    if (dwarf_offdie(dwarf_, offset, &die) == nullptr || !affordable(die) ||
        dwarf_getsrclines(&die, &lines, &count) != 0)
      continue;
    bool open = false;
    Dwarf_Addr begin = 0;
    for (size_t i = 0; i < count && units_.size() < kMostRanges; ++i) {
      Dwarf_Line* row = dwarf_onesrcline(lines, i);
      Dwarf_Addr at = 0;
      bool last = false;
      if (dwarf_lineaddr(row, &at) != 0 || dwarf_lineendsequence(row, &last) != 0) break;
      if (!open) begin = at;
      open = !last;
      if (last && begin < at) units_.push_back({begin, at, 0, offset});
    }
  }
  sort();
}

void DwarfUnits::sort() {
  std::ranges::sort(units_, {}, [](const Unit& u) { return std::pair(u.begin, u.end); });
  uint64_t highest = 0;
  for (Unit& u : units_) u.highest_end = highest = std::max(highest, u.end);
}

void DwarfUnits::read() {
  size_t count = 0;
  Dwarf_Off next = 0;
  for (Dwarf_Off at = 0; units_.size() < kMostRanges; at = next) {
    size_t header = 0;
    Dwarf_Half version = 0;
    Dwarf_Off abbrevs = 0;
    uint8_t address_size = 0, offset_size = 0;
    const int status = dwarf_next_unit(dwarf_, at, &next, &header, &version, &abbrevs, &address_size,
                                       &offset_size, nullptr, nullptr);
    if (status > 0) break;
    if (status < 0 || next <= at || ++count > kMostUnits) {
      complain(status < 0 ? libdw_reason() : "too many units");
      break;
    }
    Dwarf_Die die;
    if (dwarf_offdie(dwarf_, at + header, &die) == nullptr) {
      complain(libdw_reason());
      continue;
    }
    const int tag = dwarf_tag(&die);
    if (tag != DW_TAG_compile_unit && tag != DW_TAG_skeleton_unit) continue;
    const bool whole = add_ranges(die) && version > 2;
    if (!whole && dwarf_hasattr(&die, DW_AT_stmt_list) != 0) without_ranges_.push_back(dwarf_dieoffset(&die));
  }
  sort();
}

// Tables overlap in a hostile file: their total is bounded.
bool DwarfUnits::affordable(Dwarf_Die& die) {
  if (dwarf_hasattr(&die, DW_AT_stmt_list) == 0) return false;
  const Dwarf_Off offset = dwarf_dieoffset(&die);
  const auto at = std::ranges::lower_bound(counted_, offset);
  if (at != counted_.end() && *at == offset) return true;
  if (rows_ > kMostRows) {
    complain(fmt::format("more than {} rows of lines", kMostRows));
    return false;
  }
  counted_.insert(at, offset);
  Dwarf_Lines* lines = nullptr;
  size_t n = 0;
  if (dwarf_getsrclines(&die, &lines, &n) != 0) {
    complain(libdw_reason());
    return true;
  }
  rows_ += n;
  return true;
}

std::vector<Dwarf_Off> DwarfUnits::all() {
  add_ranges_of_lines();
  std::vector<Dwarf_Off> all;
  all.reserve(units_.size());
  for (const Unit& u : units_) all.push_back(u.die);
  std::ranges::sort(all);
  all.erase(std::ranges::unique(all).begin(), all.end());
  return all;
}

}  // namespace asof
