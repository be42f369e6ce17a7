// DwarfSplit: the debug information that a unit leaves to another file (-gsplit-dwarf, .dwo). libdw opens that file, whatever
// it is, as soon as it is asked for it: so what it would open is looked at first.
#pragma once
#include <elfutils/libdw.h>

#include <cstddef>
#include <optional>
#include <string>

namespace asof {

class DwarfSplit {
 public:
  // `file`: descriptor of the file that has the unit; negative: it has no folder.
  explicit DwarfSplit(int file);

  // The entry in a file of its own of what `unit` is the skeleton of. Nothing: it is none, or its file is not read.
  std::optional<Dwarf_Die> of(Dwarf_Die& unit);
  // Why some were not read; empty: none. Once.
  std::string take_problem();

 private:
  bool may_be_read(const std::string& path, bool& there);

  std::string folder_;  // of the file, as libdw names it; empty: none
  std::string problem_;
  bool reported_ = false;
};

}  // namespace asof
