#include "decoder/module/module_elf.h"

#include <elf.h>
#include <fmt/format.h>
#include <gelf.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "decoder/io/elf_over.h"

namespace asof {
namespace {

using Bytes = std::span<const uint8_t>;

constexpr size_t kMostSections = 65279;  // SHN_LORESERVE - 1; modules have fewer than a hundred

struct ElfEnd {
  void operator()(Elf* elf) const { ::elf_end(elf); }
};

// What a section has in the file; nothing where that lies outside.
std::optional<Bytes> bytes_of(Elf_Scn* section, const GElf_Shdr& h) {
  if (h.sh_type == SHT_NOBITS || h.sh_type == SHT_NULL || h.sh_size == 0) return Bytes();
  const Elf_Data* const data = ::elf_rawdata(section, nullptr);
  if (data == nullptr || data->d_buf == nullptr) return std::nullopt;
  return Bytes(static_cast<const uint8_t*>(data->d_buf), data->d_size);
}

// The entries of a table, in the order of bytes of this machine. Copies: libelf leaves them where they are in the file,
// which need not be aligned.
template <class T>
std::vector<T> entries(Elf_Scn* section) {
  const Elf_Data* const data = ::elf_getdata(section, nullptr);
  if (data == nullptr || data->d_buf == nullptr) return {};
  std::vector<T> out(data->d_size / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), data->d_buf, out.size() * sizeof(T));
  return out;
}

std::string_view string_at(Bytes table, uint64_t offset) {
  if (offset >= table.size()) return {};
  const auto rest = table.subspan(offset);
  const auto end = std::find(rest.begin(), rest.end(), uint8_t{0});
  return {reinterpret_cast<const char*>(rest.data()), static_cast<size_t>(end - rest.begin())};
}

}  // namespace

bool ModuleSection::is_text() const {
  constexpr uint64_t kText = SHF_ALLOC | SHF_EXECINSTR;
  return (flags & kText) == kText;
}

size_t ModuleElf::find(std::string_view name) const {
  const auto it = std::find_if(sections_.begin(), sections_.end(),
                               [&](const ModuleSection& s) { return s.name == name; });
  return static_cast<size_t>(it - sections_.begin());
}

Result<ModuleElf> ModuleElf::parse(Bytes file, const std::string& path) {
  const auto bad = [&](const std::string& why) {
    return fail(Code::kBadModuleFile, path, Error::kNoOffset, "not a usable kernel module: " + why,
                "give the .ko file of the recorded kernel, unpacked");
  };
  ::elf_version(EV_CURRENT);
  const std::unique_ptr<Elf, ElfEnd> elf(elf_over(file));
  if (!elf || ::elf_kind(elf.get()) != ELF_K_ELF) return bad("no ELF file");
  GElf_Ehdr head{};
  if (::gelf_getclass(elf.get()) != ELFCLASS64 || ::gelf_getehdr(elf.get(), &head) == nullptr ||
      head.e_ident[EI_DATA] != ELFDATA2LSB || head.e_machine != EM_X86_64 || head.e_type != ET_REL)
    return bad("no relocatable file for x86-64");
  size_t count = 0, names_at = 0;
  if (::elf_getshdrnum(elf.get(), &count) != 0 || count == 0 || count > kMostSections ||
      ::elf_getshdrstrndx(elf.get(), &names_at) != 0)
    return bad("no section headers");
  ModuleElf out;
  for (size_t i = 0; i < count; ++i) {
    Elf_Scn* const section = ::elf_getscn(elf.get(), i);
    GElf_Shdr h{};
    if (section == nullptr || ::gelf_getshdr(section, &h) == nullptr)
      return bad("section headers outside of the file");
    const auto bytes = bytes_of(section, h);
    if (!bytes) return bad("a section outside of the file");
    out.sections_.push_back({.name = {},
                             .type = h.sh_type,
                             .flags = h.sh_flags,
                             .size = h.sh_size,
                             .align = std::max<uint64_t>(h.sh_addralign, 1),
                             .bytes = *bytes});
  }
  const auto strings = [&](size_t section) {
    return section < count ? out.sections_[section].bytes : Bytes();
  };
  out.relocations_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    Elf_Scn* const section = ::elf_getscn(elf.get(), i);
    GElf_Shdr h{};
    ::gelf_getshdr(section, &h);
    out.sections_[i].name = string_at(strings(names_at), h.sh_name);
    if (h.sh_type == SHT_SYMTAB && out.symbols_.empty()) {
      for (const Elf64_Sym& s : entries<Elf64_Sym>(section))
        out.symbols_.push_back({string_at(strings(h.sh_link), s.st_name), s.st_value, s.st_shndx});
    } else if (h.sh_type == SHT_RELA && h.sh_info < count) {
      auto& to = out.relocations_[h.sh_info];
      for (const Elf64_Rela& r : entries<Elf64_Rela>(section))
        to.push_back({r.r_offset, static_cast<uint32_t>(ELF64_R_TYPE(r.r_info)),
                      static_cast<uint32_t>(ELF64_R_SYM(r.r_info)), r.r_addend});
      std::ranges::stable_sort(to, {}, &ModuleRelocation::offset);
    }
  }
  return out;
}

}  // namespace asof
