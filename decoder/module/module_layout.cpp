#include "decoder/module/module_layout.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>

namespace asof {
namespace {

constexpr uint64_t kPage = 4096;

// kernel/module/main.c: sections of one group lie together, in the order of the file; groups begin on pages.
// Since Linux 6.4 groups have memory of their own, and only that of the text begins at the module's address.
enum Group : size_t { kText, kReadOnly, kReadOnlyAfterInit, kWritable, kGroups, kNone = kGroups };

Group group_of(const ModuleSection& s) {
  // Used by other code, or freed after the module is loaded.
  for (const std::string_view prefix : {".init", ".modinfo", "__versions", ".data..percpu"}) {
    if (s.name.starts_with(prefix)) return kNone;
  }
  if ((s.flags & SHF_ALLOC) == 0) return kNone;
  if ((s.flags & SHF_EXECINSTR) != 0) return kText;
  if (s.name == ".data..ro_after_init" || s.name == "__jump_table") return kReadOnlyAfterInit;
  return (s.flags & SHF_WRITE) != 0 ? kWritable : kReadOnly;
}

uint64_t align_up(uint64_t value, uint64_t align) { return (value + align - 1) / align * align; }

}  // namespace

void ModuleLayout::lay_out() {
  const auto sections = elf_->sections();
  addresses_.assign(sections.size(), std::nullopt);
  uint64_t offset = 0;
  for (size_t group = 0; group < kGroups; ++group) {
    for (size_t i = 0; i < sections.size(); ++i) {
      const ModuleSection& s = sections[i];
      if (group_of(s) != group || s.align > kPage || s.size > UINT32_MAX) continue;
      offset = align_up(offset, s.align);
      addresses_[i] = context_->range.begin + offset;
      offset += s.size;
    }
    offset = align_up(offset, kPage);
  }
}

// Compares the layout with kallsyms. Text must agree; where data does not, or nothing of it is in kallsyms,
// only what symbols say is known of it.
bool ModuleLayout::vote(std::string& why) {
  std::unordered_map<std::string_view, Addr> in_memory;  // 0: several
  for (const KernelSymbol* s : context_->symbols->of_module(context_->name)) {
    const auto [it, fresh] = in_memory.try_emplace(s->name, s->addr);
    if (!fresh) it->second = 0;
  }
  std::unordered_map<std::string_view, uint32_t> in_file;
  for (const ModuleSymbol& s : elf_->symbols()) ++in_file[s.name];
  std::vector<std::optional<Addr>> by_symbols(addresses_.size());
  for (const ModuleSymbol& s : elf_->symbols()) {
    const auto at = in_memory.find(s.name);
    if (s.name.empty() || s.section == 0 || s.section >= by_symbols.size() || in_file[s.name] != 1) continue;
    if (at == in_memory.end() || at->second == 0 || group_of(elf_->sections()[s.section]) == kNone) continue;
    const Addr begin = at->second - s.value;
    std::optional<Addr>& known = by_symbols[s.section];
    if (known && *known != begin) {
      why = fmt::format("kallsyms has its symbols at other distances than the file ({} in {})", s.name,
                        elf_->sections()[s.section].name);
      return false;
    }
    known = begin;
  }
  bool data_agrees = false;
  bool data_differs = false;
  for (size_t i = 0; i < by_symbols.size(); ++i) {
    if (!by_symbols[i]) continue;
    const bool same = addresses_[i] == by_symbols[i];
    const bool text = elf_->sections()[i].is_text();
    if (text && !same) {
      why = fmt::format("section {} is at {:#x}, where the file's sections would put it at {:#x}",
                        elf_->sections()[i].name, *by_symbols[i], addresses_[i].value_or(0));
      return false;
    }
    data_agrees |= !text && same;
    data_differs |= !text && !same;
  }
  for (size_t i = 0; i < by_symbols.size(); ++i) {
    if (!elf_->sections()[i].is_text() && (data_differs || !data_agrees)) addresses_[i] = by_symbols[i];
  }
  return true;
}

Result<ModuleLayout> ModuleLayout::make(const ModuleElf& elf, const ModuleContext& context,
                                        const std::string& path) {
  ModuleLayout out(elf, context);
  out.lay_out();
  std::string why;
  // Text begins at the module's address in every kernel; nothing else is certain.
  if (context.symbols == nullptr) {
    for (size_t i = 0; i < elf.sections().size(); ++i) {
      if (!elf.sections()[i].is_text()) out.addresses_[i] = std::nullopt;
    }
  } else if (!out.vote(why)) {
    return fail(Code::kModuleFileMismatch, path, Error::kNoOffset, why, "the file is of another build");
  }
  for (size_t i = 0; i < elf.sections().size(); ++i) {
    const ModuleSection& s = elf.sections()[i];
    if (!s.is_text() || !out.addresses_[i]) continue;
    if (!context.range.contains(range_of(*out.addresses_[i], s.size)))
      return fail(Code::kModuleFileMismatch, path, Error::kNoOffset,
                  fmt::format("its text does not fit into the {} bytes of the module", context.range.size()),
                  "the file is of another build");
  }
  return out;
}

std::optional<Addr> ModuleLayout::symbol(uint32_t index) const {
  if (index >= elf_->symbols().size()) return std::nullopt;
  const ModuleSymbol& s = elf_->symbols()[index];
  if (s.section == ModuleElf::kAbsolute) return s.value;
  if (s.section == 0) return context_->symbols == nullptr ? std::nullopt : context_->symbols->find(s.name);
  if (s.section >= addresses_.size() || !addresses_[s.section]) return std::nullopt;
  return *addresses_[s.section] + s.value;
}

}  // namespace asof
