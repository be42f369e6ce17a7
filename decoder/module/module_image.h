// A kernel module as it is in memory, made from its file: sections where the kernel put them, relocations
// applied, and what the kernel rewrites when it loads a module taken out or given as alternatives. Follows
// kernel/module/main.c (layout_sections(), simplify_symbols()) and arch/x86/kernel/module.c
// (apply_relocate_add(), module_finalize()).
//
// Bytes are only called known when nothing the kernel does at load time can change them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "decoder/module/kernel_text_symbols.h"
#include "decoder/module/module_elf.h"
#include "textstore/address.h"

namespace asof {

// Names of kallsyms to addresses. A name that several symbols have gives no address.
class ExportedSymbols {
 public:
  explicit ExportedSymbols(const Kallsyms& kallsyms);
  std::optional<Addr> find(std::string_view name) const;
  // Symbols of one module, static ones too.
  std::vector<const KernelSymbol*> of_module(std::string_view module) const;

 private:
  const Kallsyms& kallsyms_;
  std::unordered_map<std::string_view, Addr> by_name_;  // 0: several
};

struct ModuleImage {
  struct Text {
    AddrRange range;
    std::vector<uint8_t> bytes;
    std::vector<uint8_t> known;  // by byte: 1 or 0
  };
  struct Site {  // what may be here, all of one size; its bytes in Text are unknown
    Addr addr = 0;
    std::vector<std::vector<uint8_t>> variants;
  };
  std::vector<Text> text;
  std::vector<Site> sites;
  uint64_t unknown_bytes = 0;
};

// What is known of the kernel that loaded it.
struct ModuleContext {
  std::string name;                          // as kallsyms spells it
  AddrRange range;                           // of the module in memory, text first
  bool one_cpu = false;                      // LOCK prefixes may be patched away
  const ExportedSymbols* symbols = nullptr;  // nullptr: no kallsyms
};

// Error: E-TEXT-311, with the reason: layout and kallsyms disagree, sections do not fit, or the module has
// rewriting that is not understood.
Result<ModuleImage> make_module_image(const ModuleElf& elf, const ModuleContext& context,
                                      const std::string& path);

// "6.1.0-56-amd64", the first word of the module's vermagic; empty: it has none.
std::string_view module_release(const ModuleElf& elf);

}  // namespace asof
