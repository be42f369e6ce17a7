#include "decoder/patch_sites/jump_table.h"

namespace asof {
namespace {

constexpr const char *kTableBegin = "__start___jump_table", *kTableEnd = "__stop___jump_table";
// Where a kernel begins. arm64's kallsyms lacks the first symbol, which is before its text.
constexpr const char* kLandmarks[] = {"_text", "_stext"};

std::optional<JumpTable> table_in_memory(const KernelText& kernel) {
  const KernelSnapshot* start = kernel.start();
  const Kallsyms* names = start == nullptr ? nullptr : start->kallsyms();
  if (names == nullptr) return std::nullopt;
  const auto begin = names->address(kTableBegin), end = names->address(kTableEnd);
  if (!begin || !end || *end <= *begin) return std::nullopt;
  const auto bytes = start->raw({*begin, *end});
  if (bytes.empty()) return std::nullopt;
  return JumpTable{*begin, bytes, start->owner()};
}

// vmlinux is linked for one address and runs at another: its entries are relative, so only their addresses
// change.
std::optional<JumpTable> table_in_vmlinux(const KernelText& kernel, const TextFile& file) {
  const KernelSnapshot* start = kernel.start();
  const Kallsyms* names = start == nullptr ? nullptr : start->kallsyms();
  if (!file.elf || (start != nullptr && start->machine() != file.elf->machine())) return std::nullopt;
  const ElfNames linked(file.bytes);
  const auto begin = linked.find(kTableBegin), end = linked.find(kTableEnd);
  const auto slide = kernel_slide(linked, names);
  if (!begin || !end || *end <= *begin || !slide) return std::nullopt;
  for (const ElfSegment& segment : file.elf->segments()) {
    if (*begin < segment.address || *end - segment.address > segment.bytes.size()) continue;
    return JumpTable{*begin + *slide, segment.bytes.subspan(*begin - segment.address, *end - *begin),
                     file.owner};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Addr> kernel_slide(const ElfNames& linked, const Kallsyms* names) {
  if (names == nullptr) return 0;
  for (const char* landmark : kLandmarks) {
    const auto from = linked.find(landmark), to = names->address(landmark);
    if (from && to) return *to - *from;
  }
  return std::nullopt;
}

std::optional<JumpTable> find_jump_table(const KernelText& kernel, const TextFile* vmlinux) {
  auto table = table_in_memory(kernel);
  if (table || vmlinux == nullptr) return table;
  return table_in_vmlinux(kernel, *vmlinux);
}

}  // namespace asof
