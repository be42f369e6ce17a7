// DwarfInlines: which calls the compiler inlined at an address, from DW_TAG_inlined_subroutine of the units that are
// asked about. Each unit is walked once, without recursion; entries, depth and ranges are counted over the file,
// because the tree of a damaged file may have cycles, or be as deep or as wide as its writer liked.
#pragma once
#include <elfutils/libdw.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/lines/dwarf_split.h"

namespace asof {

// A function, and where it was called from if it was inlined there. Text lives as long as the Dwarf.
struct InlinedCall {
  std::string_view function;  // linkage name if there is one; empty: not known
  std::string_view file;      // of the call; empty for the function that was not inlined
  uint32_t line = 0, column = 0;
  bool inlined = false;
  uint64_t copy = 0;  // number of this copy in its file
};

// A function, or a copy of one that was inlined, with code.
struct DwarfFunction {
  std::string_view name;  // linkage name if there is one
  std::string_view file;  // where it is declared; empty: not known
  uint32_t line = 0;
  uint64_t begin = 0;  // its first instruction
};

class DwarfInlines {
 public:
  // `split`: for units that are skeletons.
  DwarfInlines(Dwarf* dwarf, DwarfSplit& split) : dwarf_(dwarf), split_(split) {}

  // Innermost first; the last is the function that was not inlined. Empty: none covers the address in this unit.
  std::vector<InlinedCall> at(Dwarf_Off unit, uint64_t address);
  // All functions of a unit, copies too.
  void each_function(Dwarf_Off unit, const std::function<void(const DwarfFunction&)>& take);
  // Why some are missing; empty: none. Once.
  std::string take_problem();

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Function {
    Dwarf_Off die = 0;
    uint32_t around = kNone;
    uint16_t depth = 0;
    bool inlined = false;
  };
  struct Range {
    uint64_t begin = 0, end = 0;
    uint64_t highest_end = 0;  // of this and all before it
    uint32_t function = 0;
  };
  struct Unit {
    Dwarf* dwarf = nullptr;  // that has the entries
    Dwarf_Die die{};         // of the unit in it
    uint64_t apart = 0;      // tells entries of different files apart
    std::vector<Function> functions;
    std::vector<Range> ranges;  // by begin
  };

  const Unit& unit_at(Dwarf_Off unit);
  struct Level {
    Dwarf_Die die;
    uint32_t around;  // function that it is in
  };
  void walk(Dwarf_Die& unit, Unit& out);
  void advance(std::vector<Level>& levels, Dwarf_Off last);
  std::optional<uint32_t> add(Dwarf_Die& die, uint32_t around, Unit& out);
  bool add_ranges(Dwarf_Die& die, uint32_t function, Unit& out);
  static InlinedCall describe(const Function& f, const Unit& unit);

  Dwarf* dwarf_;
  DwarfSplit& split_;
  std::map<Dwarf_Off, Unit> units_;
  uint64_t entries_ = 0, ranges_ = 0, passed_again_ = 0;
  std::string problem_;
  bool reported_ = false;
};

}  // namespace asof
