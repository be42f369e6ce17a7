// A kernel module as a file (ET_REL): sections, symbols, relocations. libelf reads them; what it cannot do is to apply
// the relocations as the kernel does (arch/x86/kernel/module.c).
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "textstore/result.h"

namespace asof {

struct ModuleSection {
  std::string_view name;
  uint32_t type = 0;
  uint64_t flags = 0, size = 0, align = 1;
  std::span<const uint8_t> bytes;  // empty for SHT_NOBITS

  bool is_text() const;  // allocated and executable
};

struct ModuleSymbol {
  std::string_view name;
  uint64_t value = 0;    // offset in its section
  uint32_t section = 0;  // 0: undefined; otherwise an index, or a reserved one (absolute, common)
};

struct ModuleRelocation {
  uint64_t offset = 0;  // in the section it applies to
  uint32_t type = 0;    // R_X86_64_*
  uint32_t symbol = 0;
  int64_t addend = 0;
};

class ModuleElf {
 public:
  static constexpr uint32_t kAbsolute = 0xfff1;  // SHN_ABS

  // Error: E-FILE-312, the bytes are no ELF64 little-endian x86-64 ET_REL file, or a table lies outside.
  static Result<ModuleElf> parse(std::span<const uint8_t> file, const std::string& path);

  std::span<const ModuleSection> sections() const { return sections_; }
  std::span<const ModuleSymbol> symbols() const { return symbols_; }
  // Of a section, by offset.
  std::span<const ModuleRelocation> relocations(size_t section) const { return relocations_[section]; }
  // The section of this name; sections().size(): none.
  size_t find(std::string_view name) const;

 private:
  std::vector<ModuleSection> sections_;
  std::vector<ModuleSymbol> symbols_;
  std::vector<std::vector<ModuleRelocation>> relocations_;  // by section
};

}  // namespace asof
