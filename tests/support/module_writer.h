// ModuleWriter: a kernel module as built: ELF64 ET_REL with sections, symbols and relocations.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace asof::test {

class ModuleWriter {
 public:
  struct Relocation {
    uint64_t offset = 0;
    uint32_t type = 0;  // R_X86_64_*
    std::string symbol{};
    int64_t addend = 0;
  };
  struct Section {
    std::string name{};
    uint64_t flags = 0;  // SHF_*
    std::vector<uint8_t> bytes{};
    uint64_t align = 1;
    std::vector<Relocation> relocations{};
  };

  static constexpr uint64_t kWrite = 1, kAlloc = 2, kExec = 4;

  Section& section(const std::string& name, uint64_t flags, std::vector<uint8_t> bytes, uint64_t align = 16);
  Section& operator[](const std::string& name);
  // Empty `section`: undefined.
  void symbol(const std::string& name, const std::string& section, uint64_t value);
  // Section names such as ".text" are symbols, too.
  std::vector<uint8_t> bytes() const;

  // A list of sites (.return_sites, .smp_locks, ...): 4-byte entries relative to themselves.
  void places(const std::string& name, const std::string& section, const std::vector<uint64_t>& offsets);

 private:
  struct Symbol {
    std::string name{}, section{};
    uint64_t value = 0;
  };
  std::vector<Section> sections_;
  std::vector<Symbol> symbols_;
};

}  // namespace asof::test
