#include "decoder/lines/dwarf_inlines.h"

#include <dwarf.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace asof {
namespace {

// The largest real files have some ten million entries in the units of all code that ran.
constexpr uint64_t kMostEntries = uint64_t{1} << 25U;
constexpr uint64_t kMostRanges = uint64_t{1} << 23U;
constexpr size_t kMostDepth = 512;
constexpr uint64_t kMostAgain = uint64_t{1} << 26U, kMostAgainEach = 160;  // bytes, and for each entry
constexpr size_t kMostScanned = 4096;                                      // ranges examined for one address

uint32_t number_of(Dwarf_Die& die, unsigned name) {
  Dwarf_Attribute attribute;
  Dwarf_Word value = 0;
  if (dwarf_formudata(dwarf_attr(&die, name, &attribute), &value) != 0 || value > UINT32_MAX) return 0;
  return static_cast<uint32_t>(value);
}

std::string_view text_of(Dwarf_Die& die, unsigned name) {
  Dwarf_Attribute attribute;
  const char* text = dwarf_formstring(dwarf_attr_integrate(&die, name, &attribute));
  return text == nullptr ? std::string_view() : std::string_view(text);
}

std::string_view name_of(Dwarf_Die& die) {
  for (const unsigned name : {DW_AT_linkage_name, DW_AT_MIPS_linkage_name, DW_AT_name}) {
    if (const auto text = text_of(die, name); !text.empty()) return text;
  }
  return {};
}

}  // namespace

// False: the budget is used up.
bool DwarfInlines::add_ranges(Dwarf_Die& die, uint32_t function, Unit& out) {
  Dwarf_Addr base = 0, begin = 0, end = 0;
  for (ptrdiff_t at = 0; (at = dwarf_ranges(&die, at, &base, &begin, &end)) > 0;) {
    if (++ranges_ > kMostRanges) {
      problem_ = fmt::format("more than {} ranges of functions", kMostRanges);
      return false;
    }
    if (begin < end) out.ranges.push_back({begin, end, 0, function});
  }
  return true;
}

// The function that the entries below this one are in. Nothing: the budget is used up.
std::optional<uint32_t> DwarfInlines::add(Dwarf_Die& die, uint32_t around, Unit& out) {
  const int tag = dwarf_tag(&die);
  if (tag != DW_TAG_subprogram && tag != DW_TAG_inlined_subroutine) return around;
  const auto id = static_cast<uint32_t>(out.functions.size());
  const size_t before = out.ranges.size();
  if (!add_ranges(die, id, out)) return std::nullopt;
  if (out.ranges.size() == before) return kNone;  // a declaration, or a function that is only inlined
  const bool inlined = tag == DW_TAG_inlined_subroutine && around != kNone;
  out.functions.push_back({dwarf_dieoffset(&die), inlined ? around : kNone,
                           static_cast<uint16_t>(around == kNone ? 0 : out.functions[around].depth + 1),
                           inlined});
  return id;
}

// The entry behind a level's. Without DW_AT_sibling libdw goes over everything below an entry once more to find it:
// that is counted, or deep trees would take quadratic time.
void DwarfInlines::advance(std::vector<Level>& levels, Dwarf_Off last) {
  while (!levels.empty()) {
    Dwarf_Die& die = levels.back().die;
    const Dwarf_Off at = dwarf_dieoffset(&die);
    if (last > at && dwarf_hasattr(&die, DW_AT_sibling) == 0) passed_again_ += last - at;
    Dwarf_Die next;
    if (dwarf_siblingof(&die, &next) == 0) {
      die = next;
      return;
    }
    levels.pop_back();
  }
}

void DwarfInlines::walk(Dwarf_Die& unit, Unit& out) {
  std::vector<Level> levels;
  Dwarf_Die first;
  if (dwarf_child(&unit, &first) == 0) levels.push_back({first, kNone});
  while (!levels.empty()) {
    ++entries_;
    if (entries_ > kMostEntries || passed_again_ > kMostAgain + kMostAgainEach * entries_) {
      problem_ = fmt::format("more than {} entries, or trees of them that take too long", kMostEntries);
      return;
    }
    Dwarf_Die die = levels.back().die;
    const auto around = add(die, levels.back().around, out);
    if (!around) return;
    Dwarf_Die child;
    if (dwarf_child(&die, &child) != 0) {
      advance(levels, dwarf_dieoffset(&die));
      continue;
    }
    if (levels.size() >= kMostDepth) {
      problem_ = fmt::format("entries nested deeper than {}", kMostDepth);
      return;
    }
    levels.push_back({child, *around});
  }
}

const DwarfInlines::Unit& DwarfInlines::unit_at(Dwarf_Off offset) {
  const auto [at, fresh] = units_.try_emplace(offset);
  Unit& unit = at->second;
  Dwarf_Die die;
  // Once something is wrong no further unit is walked: what is left of the budget is no reason to try.
  if (!fresh || !problem_.empty() || reported_ || dwarf_offdie(dwarf_, offset, &die) == nullptr) return unit;
  unit.dwarf = dwarf_;
  unit.die = die;
  if (const auto split = split_.of(die)) {
    unit.die = *split;
    unit.dwarf = dwarf_cu_getdwarf(split->cu);
    unit.apart = (offset + 1) << 32U;
  }
  walk(unit.die, unit);
  if (!problem_.empty()) unit = {};
  std::ranges::stable_sort(unit.ranges, {}, &Range::begin);
  uint64_t highest = 0;
  for (Range& r : unit.ranges) r.highest_end = highest = std::max(highest, r.end);
  return unit;
}

InlinedCall DwarfInlines::describe(const Function& f, const Unit& unit) {
  InlinedCall out;
  Dwarf_Die die;
  if (dwarf_offdie(unit.dwarf, f.die, &die) == nullptr) return out;
  out.function = name_of(die);
  out.inlined = f.inlined;
  out.copy = unit.apart + dwarf_dieoffset(&die);
  if (!f.inlined) return out;
  out.line = number_of(die, DW_AT_call_line);
  out.column = number_of(die, DW_AT_call_column);
  Dwarf_Files* files = nullptr;
  size_t count = 0;
  const uint32_t number = number_of(die, DW_AT_call_file);
  Dwarf_Die of = unit.die;
  if (dwarf_getsrcfiles(&of, &files, &count) != 0 || number >= count) return out;
  if (const char* file = dwarf_filesrc(files, number, nullptr, nullptr)) out.file = file;
  return out;
}

std::vector<InlinedCall> DwarfInlines::at(Dwarf_Off offset, uint64_t address) {
  const Unit& unit = unit_at(offset);
  // The deepest that covers it; of equals the first.
  uint32_t found = kNone;
  auto next = std::ranges::upper_bound(unit.ranges, address, {}, &Range::begin);
  for (size_t i = 0; i < kMostScanned && next != unit.ranges.begin(); ++i) {
    --next;
    if (next->highest_end <= address) break;
    if (next->end <= address) continue;
    const Function& f = unit.functions[next->function];
    if (found == kNone || f.depth > unit.functions[found].depth ||
        (f.depth == unit.functions[found].depth && next->function < found))
      found = next->function;
  }
  std::vector<InlinedCall> out;
  for (uint32_t f = found; f != kNone; f = unit.functions[f].around)
    out.push_back(describe(unit.functions[f], unit));
  return out;
}

void DwarfInlines::each_function(Dwarf_Off offset, const std::function<void(const DwarfFunction&)>& take) {
  const Unit& unit = unit_at(offset);
  std::vector<uint64_t> begins(unit.functions.size(), UINT64_MAX);
  for (const Range& r : unit.ranges) begins[r.function] = std::min(begins[r.function], r.begin);
  if (unit.functions.empty()) return;
  Dwarf_Die unit_die = unit.die;
  Dwarf_Files* files = nullptr;
  size_t count = 0;
  if (dwarf_getsrcfiles(&unit_die, &files, &count) != 0) return;
  for (size_t i = 0; i < unit.functions.size(); ++i) {
    Dwarf_Die die;
    if (begins[i] == UINT64_MAX || dwarf_offdie(unit.dwarf, unit.functions[i].die, &die) == nullptr) continue;
    DwarfFunction f;
    f.name = name_of(die);
    f.begin = begins[i];
    Dwarf_Addr entry = 0;
    if (dwarf_entrypc(&die, &entry) == 0) f.begin = entry;
    int line = 0;
    if (dwarf_decl_line(&die, &line) == 0 && line > 0) f.line = static_cast<uint32_t>(line);
    if (const char* file = dwarf_decl_file(&die)) f.file = file;
    take(f);
  }
}

std::string DwarfInlines::take_problem() {
  if (problem_.empty() || std::exchange(reported_, true)) return {};
  return std::exchange(problem_, {});
}

}  // namespace asof
