// DwarfFile: an ELF file opened for libdw. libdw opens no other file by itself but those of split units (dwarf_split.h): the
// supplementary file of dwz(1) is opened here. Compressed kernel modules are expanded, and modules are laid out first (module_debug.h).
#pragma once
#include <elfutils/libdw.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "decoder/lines/module_debug.h"
#include "textstore/result.h"

namespace asof {

class DwarfFile {
 public:
  // Error: E-TEXT-208, with libdw's reason; I-TEXT-207 where there is no debug information at all.
  static Result<std::unique_ptr<DwarfFile>> open(const std::string& path);
  ~DwarfFile();
  DwarfFile(const DwarfFile&) = delete;
  DwarfFile& operator=(const DwarfFile&) = delete;

  Dwarf* dwarf() const { return dwarf_; }
  const ModuleDebug& module() const { return module_; }
  // Of the file as libdw has it; -1: it has it in memory.
  int descriptor() const { return expanded_ || !module_.bytes.empty() ? -1 : fd_; }

 private:
  DwarfFile() = default;
  Result<void> open_elf(const std::string& path);
  Result<void> open_module(const std::string& path);
  Result<void> open_supplement(const std::string& path);

  int fd_ = -1;
  std::shared_ptr<const std::vector<uint8_t>> expanded_;  // of a compressed file
  Elf* elf_ = nullptr;
  Dwarf* dwarf_ = nullptr;
  Dwarf* supplement_ = nullptr;
  int supplement_fd_ = -1;
  ModuleDebug module_;
};

// Whether libdw may open it for a split unit: a regular ELF file whose sections unpack to what such do.
Result<void> check_split_file(const std::string& path);

// Of the last call of libdw that failed in this thread.
std::string libdw_reason();

}  // namespace asof
