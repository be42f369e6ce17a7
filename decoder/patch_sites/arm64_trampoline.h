// The code through which EL0 enters and leaves an arm64 kernel whose page tables are kept apart (KPTI). It
// runs at an address of the fixmap, in no copy of memory, and is stored elsewhere in the kernel's image:
// .entry.tramp.text, after the text that perf copies. Kernel: arch/arm64/kernel/entry.S (tramp_alias),
// arch/arm64/mm/mmu.c (map_entry_trampoline()).
#pragma once
#include <optional>

#include "decoder/kernel_text/kernel_text.h"

namespace asof {

struct Trampoline {
  Addr alias = 0;  // where it runs
  Addr image = 0;  // where it is stored
};

// As the exit to EL0 computes it: the alias's address, plus a symbol, minus the section's begin.
std::optional<Trampoline> find_trampoline(const KernelText& kernel);

// Its bytes, from the copy of kcore or from `vmlinux` (may be nullptr), and its names, where it runs.
void add_trampoline(const KernelText& kernel, const TextFile* vmlinux, Builder& builder, SymbolTable& symbols,
                    NoticeBook& notices);

}  // namespace asof
