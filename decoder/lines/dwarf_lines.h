// DwarfLines: the line table of one ELF file (DWARF 2 to 5, by libdw), by address as linked. Only the units
// of .debug_info and the lines of .debug_line are read; libdw never opens another file.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "textstore/result.h"

namespace asof {

struct DwarfLine {
  std::string_view file;  // lives as long as the DwarfLines
  uint32_t line = 0;      // 0: unknown
  uint32_t column = 0;
};

struct DebugLink {  // .gnu_debuglink
  std::string file;
  uint32_t crc = 0;
};

class DwarfLines {
 public:
  // Error: E-TEXT-208, with libdw's reason; I-TEXT-207 where there is no debug information at all.
  static Result<std::unique_ptr<DwarfLines>> open(const std::string& path);
  ~DwarfLines();
  DwarfLines(const DwarfLines&) = delete;
  DwarfLines& operator=(const DwarfLines&) = delete;

  DwarfLine find(uint64_t address);
  // Why lines are missing, if something went wrong since; each reason once.
  std::string take_problem();

 private:
  struct Impl;
  explicit DwarfLines(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// What a file without debug information says of the one that has it; an empty name: nothing.
DebugLink debug_link(const std::string& path);
// Checksum of a debug link: CRC-32 of a whole file.
uint32_t debug_link_crc(const std::string& path);

}  // namespace asof
