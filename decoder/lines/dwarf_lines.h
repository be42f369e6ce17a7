// DwarfLines: the line table of one ELF file (DWARF 2 to 5, by libdw), by address as linked. Only the units
// of .debug_info and the lines of .debug_line are read, and .dwo files. Addresses of a module of the
// kernel are offsets into its code (module_debug.h).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "decoder/lines/dwarf_inlines.h"
#include "textstore/result.h"

namespace asof {

struct DwarfLine {
  std::string_view file;  // lives as long as the DwarfLines
  uint32_t line = 0;      // 0: unknown
  uint32_t column = 0;
};

class DwarfLines {
 public:
  // Error: E-TEXT-208, with libdw's reason; I-TEXT-207 where there is no debug information at all.
  static Result<std::unique_ptr<DwarfLines>> open(const std::string& path);
  ~DwarfLines();
  DwarfLines(const DwarfLines&) = delete;
  DwarfLines& operator=(const DwarfLines&) = delete;

  DwarfLine find(uint64_t address);
  // The functions there, innermost first (dwarf_inlines.h). The first is at find()'s line, each other one at the call
  // of the one before it. Empty: not known.
  std::vector<InlinedCall> functions_at(uint64_t address);
  // Every function and every copy that was inlined; every line that has code, some more than once.
  std::vector<DwarfFunction> functions();
  void each_line(const std::function<void(std::string_view file, uint32_t line)>& take);
  // Of a module of the kernel (module_debug.h), with the offsets of its functions.
  const std::vector<std::pair<std::string, uint64_t>>& module_functions() const;
  // Why lines are missing, if something went wrong since; each reason once.
  std::string take_problem();
  // Why functions are missing that are in .dwo files; once.
  std::string take_split_problem();

 private:
  struct Impl;
  explicit DwarfLines(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace asof
