// The kernel's table of jump labels: every site that a static key switches between a no-op and one jump, and
// where that jump goes (include/linux/jump_label.h, struct jump_entry with relative addresses).
#pragma once
#include <memory>
#include <optional>
#include <span>

#include "decoder/io/elf_names.h"
#include "decoder/kernel_text/kernel_text.h"

namespace asof {

// The table's bytes and their address in the traced kernel: entries are relative to their own address.
struct JumpTable {
  Addr begin = 0;
  std::span<const uint8_t> bytes;
  std::shared_ptr<const void> owner;
};

// From the copy of kcore, where that has data, else from `vmlinux` (KernelText::find_vmlinux(); may be
// nullptr) with its symbols.
std::optional<JumpTable> find_jump_table(const KernelText& kernel, const TextFile* vmlinux);

// From where a vmlinux was linked to where the kernel runs; nullopt: it has no symbol that shows it. `names`
// may be nullptr: nothing is known to have moved.
std::optional<Addr> kernel_slide(const ElfNames& linked, const Kallsyms* names);

}  // namespace asof
