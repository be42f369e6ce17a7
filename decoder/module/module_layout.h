// Where the sections of a loaded module are, and the values of its symbols.
#pragma once
#include <optional>
#include <vector>

#include "decoder/module/module_image.h"

namespace asof {

class ModuleLayout {
 public:
  // Error: E-TEXT-311.
  static Result<ModuleLayout> make(const ModuleElf& elf, const ModuleContext& context,
                                   const std::string& path);

  std::optional<Addr> section(size_t index) const { return addresses_[index]; }
  // The value of a symbol, as simplify_symbols() would find it.
  std::optional<Addr> symbol(uint32_t index) const;

 private:
  ModuleLayout(const ModuleElf& elf, const ModuleContext& context) : elf_(&elf), context_(&context) {}
  void lay_out();
  bool vote(std::string& why);

  const ModuleElf* elf_;
  const ModuleContext* context_;
  std::vector<std::optional<Addr>> addresses_;  // by section
};

}  // namespace asof
