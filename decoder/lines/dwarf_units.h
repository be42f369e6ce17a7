// DwarfUnits: the units of a file's debug information by the code that they cover. Ranges, units and rows of lines are
// counted over the file, because those of a damaged or hostile file may overlap.
#pragma once
#include <elfutils/libdw.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace asof {

class DwarfUnits {
 public:
  explicit DwarfUnits(Dwarf* dwarf) : dwarf_(dwarf) { read(); }

  bool none() const { return units_.empty() && without_ranges_.empty() && problem_.empty(); }
  // Some units say only by their lines where their code is; these are read when nothing else is found.
  bool lines_unread() const { return !without_ranges_.empty(); }
  void add_ranges_of_lines();
  // Of the units that cover the address, the first for which `take(Dwarf_Off)` is true.
  template <class Take>
  void covering(uint64_t address, Take&& take) const;
  // By offset, each once.
  std::vector<Dwarf_Off> all();
  // Whether the unit's lines may be read; false too where it has none.
  bool affordable(Dwarf_Die& die);

  void complain(std::string why) {
    if (!std::exchange(reported_, true)) problem_ = std::move(why);
  }
  // Once.
  std::string take_problem() { return std::exchange(problem_, {}); }

 private:
  struct Unit {
    uint64_t begin = 0, end = 0;
    uint64_t highest_end = 0;  // of this and all before it
    Dwarf_Off die = 0;
  };
  static constexpr size_t kMostOverlap = 64;  // units that cover one address

  void read();
  bool add_ranges(Dwarf_Die& die);
  void sort();

  Dwarf* dwarf_;
  std::vector<Unit> units_;                // by begin
  std::vector<Dwarf_Off> without_ranges_;  // units that may have code elsewhere
  std::vector<Dwarf_Off> counted_;         // units whose rows are counted; sorted
  uint64_t rows_ = 0;
  std::string problem_;
  bool reported_ = false;
};

template <class Take>
void DwarfUnits::covering(uint64_t address, Take&& take) const {
  auto next = std::ranges::upper_bound(units_, address, {}, &Unit::begin);
  for (size_t i = 0; i < kMostOverlap && next != units_.begin(); ++i) {
    --next;
    if (next->highest_end <= address) break;
    if (next->end <= address) continue;
    if (take(next->die)) return;
  }
}

}  // namespace asof
