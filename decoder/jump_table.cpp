#include "decoder/jump_table.h"

#include <algorithm>
#include <cstring>

#include "decoder/reader.h"

namespace asof {
namespace {

constexpr const char *kTableBegin = "__start___jump_table", *kTableEnd = "__stop___jump_table";
// Where a kernel begins. arm64's kallsyms lacks the first one, which lies in front of its text.
constexpr const char* kLandmarks[] = {"_text", "_stext"};

// Symbols of an ELF64 file by name, data included: textstore/image.h gives those of code.
class ElfNames {
 public:
  explicit ElfNames(std::span<const uint8_t> file) : file_(file) {
    Reader in(file_);
    in.seek(40);
    const uint64_t table = in.u64();
    in.seek(58);
    const uint16_t entry = in.u16(), count = in.u16();
    for (uint64_t i = 0; i < count; ++i) {
      Reader section(file_);
      section.seek(table + i * entry);
      section.skip(4);
      const uint32_t type = section.u32();
      section.skip(16);
      const uint64_t offset = section.u64(), size = section.u64();
      const uint32_t link = section.u32();
      if (!section.ok() || type != kSymbolTable) continue;
      symbols_ = part(offset, size);
      Reader strings(file_);
      strings.seek(table + uint64_t{link} * entry + 24);
      const uint64_t at = strings.u64();
      names_ = part(at, strings.u64());
    }
  }

  std::optional<Addr> find(std::string_view name) const {
    for (size_t at = 0; at + kSymbol <= symbols_.size(); at += kSymbol) {
      Reader in(symbols_.subspan(at, kSymbol));
      const uint32_t where = in.u32();
      in.skip(4);
      if (where + name.size() >= names_.size() || names_[where + name.size()] != 0) continue;
      if (std::memcmp(names_.data() + where, name.data(), name.size()) == 0) return in.u64();
    }
    return std::nullopt;
  }

 private:
  static constexpr uint32_t kSymbolTable = 2;
  static constexpr size_t kSymbol = 24;
  std::span<const uint8_t> part(uint64_t offset, uint64_t size) const {
    if (offset > file_.size()) return {};
    return file_.subspan(offset, std::min<uint64_t>(size, file_.size() - offset));
  }
  std::span<const uint8_t> file_, symbols_, names_;
};

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

// From where it was linked to where it runs.
std::optional<Addr> slide_of(const ElfNames& linked, const Kallsyms* names) {
  if (names == nullptr) return 0;
  for (const char* landmark : kLandmarks) {
    const auto from = linked.find(landmark), to = names->address(landmark);
    if (from && to) return *to - *from;
  }
  return std::nullopt;
}

// vmlinux is linked for one address and runs at another: its entries are relative, so only their place moves.
std::optional<JumpTable> table_in_vmlinux(const KernelText& kernel, const TextFile& file) {
  const KernelSnapshot* start = kernel.start();
  const Kallsyms* names = start == nullptr ? nullptr : start->kallsyms();
  if (!file.elf || (start != nullptr && start->machine() != file.elf->machine())) return std::nullopt;
  const ElfNames linked(file.bytes);
  const auto begin = linked.find(kTableBegin), end = linked.find(kTableEnd);
  const auto slide = slide_of(linked, names);
  if (!begin || !end || *end <= *begin || !slide) return std::nullopt;
  for (const ElfSegment& segment : file.elf->segments()) {
    if (*begin < segment.address || *end - segment.address > segment.bytes.size()) continue;
    return JumpTable{*begin + *slide, segment.bytes.subspan(*begin - segment.address, *end - *begin),
                     file.owner};
  }
  return std::nullopt;
}

}  // namespace

std::optional<JumpTable> find_jump_table(const KernelText& kernel, const TextFile* vmlinux) {
  auto table = table_in_memory(kernel);
  if (table || vmlinux == nullptr) return table;
  return table_in_vmlinux(kernel, *vmlinux);
}

}  // namespace asof
