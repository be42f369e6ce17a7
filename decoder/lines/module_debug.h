// Debug information of a kernel module: a relocatable file, or its separate debug file, whose sections refer to places
// that are only known when it is loaded. Here its code begins at 0, in the order in which the kernel lays it out
// (kernel/module/main.c, layout_sections()), so an address is an offset into the module's memory.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "textstore/result.h"

namespace asof {

struct ModuleDebug {
  std::vector<uint8_t> bytes;  // of the file, with relocations of debug sections applied
  std::vector<std::pair<std::string, uint64_t>> functions;  // of its code, by offset
};

bool is_relocatable(std::span<const uint8_t> file);
// Error: E-TEXT-208, with what is wrong with it.
Result<ModuleDebug> relocate_module(std::span<const uint8_t> file, const std::string& path);

}  // namespace asof
