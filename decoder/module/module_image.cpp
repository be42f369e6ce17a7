#include "decoder/module/module_image.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>

#include "decoder/module/module_layout.h"
#include "decoder/module/module_patches.h"

namespace asof {
namespace {

// Sections of text that never run at their address, or that are rewritten as a whole.
bool is_used(const ModuleSection& s) {
  return s.is_text() && s.type == SHT_PROGBITS && !s.name.starts_with(".init") &&
         s.name != ".altinstr_replacement" && s.name != ".static_call.text";
}

void forget(ModuleImage::Text& text, uint64_t offset, uint64_t size) {
  for (uint64_t i = offset; i < offset + size && i < text.known.size(); ++i) text.known[i] = 0;
}

// apply_relocate_add(): how many bytes a relocation writes, and what; nullopt: a kind modules do not have.
struct Applied {
  uint64_t size = 0, value = 0;
  bool fits = true;
};
std::optional<Applied> apply(uint32_t type, Addr value, Addr place) {
  switch (type) {
    case R_X86_64_64:
      return Applied{8, value, true};
    case R_X86_64_32:
      return Applied{4, value, value <= UINT32_MAX};
    case R_X86_64_32S:
      return Applied{4, value, static_cast<int64_t>(value) == static_cast<int32_t>(value)};
    case R_X86_64_PC32:
    case R_X86_64_PLT32:
      return Applied{4, value - place,
                     static_cast<int64_t>(value - place) == static_cast<int32_t>(value - place)};
    case R_X86_64_PC64:
      return Applied{8, value - place, true};
    default:
      return std::nullopt;
  }
}

// False: a relocation that the kernel would refuse, too.
bool relocate(const ModuleElf& elf, const ModuleLayout& layout, size_t section, ModuleImage::Text& text) {
  for (const ModuleRelocation& r : elf.relocations(section)) {
    if (r.type == R_X86_64_NONE) continue;
    const auto symbol = layout.symbol(r.symbol);
    const auto applied =
        apply(r.type, symbol.value_or(0) + static_cast<Addr>(r.addend), text.range.begin + r.offset);
    if (!applied || r.offset > text.bytes.size() || applied->size > text.bytes.size() - r.offset)
      return false;
    if (!symbol) {
      forget(text, r.offset, applied->size);
      continue;
    }
    if (!applied->fits) return false;
    for (uint64_t i = 0; i < applied->size; ++i)
      text.bytes[r.offset + i] = static_cast<uint8_t>(applied->value >> (8 * i));
  }
  return true;
}

}  // namespace

ExportedSymbols::ExportedSymbols(const Kallsyms& kallsyms) : kallsyms_(kallsyms) {
  for (const KernelSymbol& s : kallsyms.symbols()) {
    const bool global = (s.type >= 'A' && s.type <= 'Z') || s.type == 'w' || s.type == 'v';
    if (!global || s.is_generated()) continue;
    const auto [it, fresh] = by_name_.try_emplace(s.name, s.addr);
    if (!fresh && it->second != s.addr) it->second = 0;
  }
}

std::optional<Addr> ExportedSymbols::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() || it->second == 0 ? std::nullopt : std::optional(it->second);
}

std::vector<const KernelSymbol*> ExportedSymbols::of_module(std::string_view module) const {
  std::vector<const KernelSymbol*> out;
  for (const KernelSymbol& s : kallsyms_.symbols()) {
    if (s.module == module) out.push_back(&s);
  }
  return out;
}

std::string_view module_release(const ModuleElf& elf) {
  const size_t index = elf.find(".modinfo");
  if (index >= elf.sections().size()) return {};
  const auto bytes = elf.sections()[index].bytes;
  std::string_view rest(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  constexpr std::string_view kKey = "vermagic=";
  while (!rest.empty()) {
    const std::string_view entry = rest.substr(0, rest.find('\0'));
    if (entry.starts_with(kKey)) return entry.substr(kKey.size(), entry.find(' ') - kKey.size());
    rest.remove_prefix(std::min(entry.size() + 1, rest.size()));
  }
  return {};
}

Result<ModuleImage> make_module_image(const ModuleElf& elf, const ModuleContext& context,
                                      const std::string& path) {
  auto layout = ModuleLayout::make(elf, context, path);
  if (!layout) return std::unexpected(layout.error());
  auto patches = module_patches(elf, *layout, context, path);
  if (!patches) return std::unexpected(patches.error());
  ModuleImage out;
  std::vector<size_t> text_of(elf.sections().size(), SIZE_MAX);
  for (size_t i = 0; i < elf.sections().size(); ++i) {
    const ModuleSection& s = elf.sections()[i];
    if (!is_used(s) || !layout->section(i)) continue;
    ModuleImage::Text text{.range = range_of(*layout->section(i), s.bytes.size()),
                           .bytes = {s.bytes.begin(), s.bytes.end()},
                           .known = std::vector<uint8_t>(s.bytes.size(), 1)};
    if (!relocate(elf, *layout, i, text))
      return fail(Code::kModuleFileMismatch, path, Error::kNoOffset,
                  fmt::format("a relocation of {} cannot be applied", s.name),
                  "the file is damaged, or of another build");
    text_of[i] = out.text.size();
    out.text.push_back(std::move(text));
  }
  for (ModulePatch& patch : *patches) {
    if (text_of[patch.section] == SIZE_MAX) continue;
    ModuleImage::Text& text = out.text[text_of[patch.section]];
    // Two lists may name one site; then neither has all that may be there.
    const auto begin = text.known.begin() + static_cast<std::ptrdiff_t>(patch.offset);
    const bool alone =
        std::all_of(begin, begin + static_cast<std::ptrdiff_t>(patch.size), [](uint8_t k) { return k == 1; });
    const Addr addr = text.range.begin + patch.offset;
    if (!patch.variants.empty() && alone) {
      out.sites.push_back({addr, std::move(patch.variants)});
    } else {
      std::erase_if(out.sites, [&](const ModuleImage::Site& s) {
        return range_of(s.addr, s.variants[0].size()).overlaps(range_of(addr, patch.size));
      });
    }
    forget(text, patch.offset, patch.size);
  }
  for (const ModuleImage::Text& text : out.text)
    out.unknown_bytes += static_cast<uint64_t>(std::count(text.known.begin(), text.known.end(), 0));
  return out;
}

}  // namespace asof
