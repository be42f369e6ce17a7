// What the kernel rewrites in a module when it loads it (arch/x86/kernel/module.c module_finalize(), jump
// labels, ftrace, static calls), found by the sections that list the sites.
#pragma once
#include <string>
#include <vector>

#include "decoder/module/module_layout.h"

namespace asof {

struct ModulePatch {
  size_t section = 0;  // a text section of the file
  uint64_t offset = 0, size = 0;
  std::vector<std::vector<uint8_t>> variants;  // all that can be there; empty: not known
};

// Error: E-TEXT-311 for rewriting that is not understood.
Result<std::vector<ModulePatch>> module_patches(const ModuleElf& elf, const ModuleLayout& layout,
                                                const ModuleContext& context, const std::string& path);

}  // namespace asof
