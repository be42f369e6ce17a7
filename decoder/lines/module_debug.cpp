#include "decoder/lines/module_debug.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

namespace asof {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 30U;
// Data is not looked up: its sections are apart from each other and from code.
constexpr uint64_t kData = uint64_t{1} << 40U, kDataStep = uint64_t{1} << 32U;

class Relocator {
 public:
  Relocator(std::span<const uint8_t> file, const std::string& path) : path_(path) {
    out_.bytes.assign(file.begin(), file.end());
  }

  Result<ModuleDebug> run() {
    if (auto ok = read_sections(); !ok) return std::unexpected(ok.error());
    lay_out();
    for (const Elf64_Shdr& s : sections_) {
      if (s.sh_type != SHT_RELA || s.sh_info >= sections_.size() || !is_debug(sections_[s.sh_info])) continue;
      if (auto ok = apply(s, sections_[s.sh_info]); !ok) return std::unexpected(ok.error());
    }
    functions();
    return std::move(out_);
  }

 private:
  std::unexpected<Error> bad(std::string why) const {
    return fail(Code::kBadDebugInfo, path_, Error::kNoOffset, std::move(why),
                "compare the file with its package");
  }
  template <class T>
  std::optional<T> read(uint64_t at) const {
    if (at > out_.bytes.size() || out_.bytes.size() - at < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, &out_.bytes[at], sizeof value);
    return value;
  }
  std::string_view text(const Elf64_Shdr& strings, uint64_t at) const {
    const uint64_t begin = strings.sh_offset + at;
    if (at >= strings.sh_size || begin < at || begin >= out_.bytes.size()) return {};
    const char* const first = reinterpret_cast<const char*>(&out_.bytes[begin]);
    return {first, ::strnlen(first, std::min(strings.sh_size - at, out_.bytes.size() - begin))};
  }
  std::string_view name(const Elf64_Shdr& s) const {
    return names_ < sections_.size() ? text(sections_[names_], s.sh_name) : std::string_view();
  }
  bool is_debug(const Elf64_Shdr& s) const { return name(s).starts_with(".debug_"); }

  Result<void> read_sections() {
    const auto head = read<Elf64_Ehdr>(0);
    if (!head || head->e_shentsize != sizeof(Elf64_Shdr)) return bad("its table of sections cannot be read");
    machine_ = head->e_machine;
    names_ = head->e_shstrndx;
    for (uint64_t i = 0; i < head->e_shnum; ++i) {
      const auto s = read<Elf64_Shdr>(head->e_shoff + i * sizeof(Elf64_Shdr));
      if (!s) return bad("its table of sections is cut");
      sections_.push_back(*s);
    }
    return {};
  }
  // As ModuleLayout: executable sections one after the other, but those of initialisation.
  void lay_out() {
    bases_.assign(sections_.size(), 0);
    uint64_t offset = 0;
    for (size_t i = 0; i < sections_.size(); ++i) {
      const Elf64_Shdr& s = sections_[i];
      if ((s.sh_flags & SHF_ALLOC) == 0) continue;
      bases_[i] = kData + i * kDataStep;
      if ((s.sh_flags & SHF_EXECINSTR) == 0 || name(s).starts_with(".init") || s.sh_size > UINT32_MAX)
        continue;
      const uint64_t align = std::clamp<uint64_t>(s.sh_addralign, 1, 4096);
      offset = (offset + align - 1) / align * align;
      bases_[i] = offset;
      offset += s.sh_size;
    }
  }
  unsigned size_of(uint32_t type) const {
    if (machine_ == EM_X86_64)
      return type == R_X86_64_64 ? 8 : type == R_X86_64_32 || type == R_X86_64_32S ? 4 : 0;
    if (machine_ == EM_AARCH64) return type == R_AARCH64_ABS64 ? 8 : type == R_AARCH64_ABS32 ? 4 : 0;
    return 0;
  }
  Result<void> apply(const Elf64_Shdr& table, const Elf64_Shdr& target) {
    if ((target.sh_flags & SHF_COMPRESSED) != 0)
      return bad("its debug sections are compressed and relocatable");
    if (table.sh_link >= sections_.size()) return bad("relocations without symbols");
    const Elf64_Shdr& symbols = sections_[table.sh_link];
    for (uint64_t at = 0; at + sizeof(Elf64_Rela) <= table.sh_size; at += sizeof(Elf64_Rela)) {
      const auto r = read<Elf64_Rela>(table.sh_offset + at);
      if (!r) return bad("its relocations are cut");
      const auto symbol = read<Elf64_Sym>(symbols.sh_offset + ELF64_R_SYM(r->r_info) * sizeof(Elf64_Sym));
      const unsigned size = size_of(static_cast<uint32_t>(ELF64_R_TYPE(r->r_info)));
      if (!symbol || size == 0 || r->r_offset > target.sh_size || target.sh_size - r->r_offset < size)
        continue;
      const uint64_t place = target.sh_offset + r->r_offset;
      if (place > out_.bytes.size() || out_.bytes.size() - place < size) continue;
      const uint64_t base = symbol->st_shndx < bases_.size() ? bases_[symbol->st_shndx] : 0;
      const uint64_t value = base + symbol->st_value + static_cast<uint64_t>(r->r_addend);
      std::memcpy(&out_.bytes[place], &value, size);
    }
    return {};
  }
  void functions() {
    for (const Elf64_Shdr& s : sections_) {
      if (s.sh_type != SHT_SYMTAB || s.sh_link >= sections_.size()) continue;
      for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= s.sh_size; at += sizeof(Elf64_Sym)) {
        const auto symbol = read<Elf64_Sym>(s.sh_offset + at);
        if (!symbol) return;
        if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || symbol->st_shndx >= bases_.size() ||
            bases_[symbol->st_shndx] >= kData)
          continue;
        out_.functions.emplace_back(text(sections_[s.sh_link], symbol->st_name),
                                    bases_[symbol->st_shndx] + symbol->st_value);
      }
    }
  }

  const std::string& path_;
  ModuleDebug out_;
  std::vector<Elf64_Shdr> sections_;
  std::vector<uint64_t> bases_;
  uint16_t machine_ = 0;
  size_t names_ = 0;
};

}  // namespace

bool is_relocatable(std::span<const uint8_t> file) {
  if (file.size() < sizeof(Elf64_Ehdr) || std::memcmp(file.data(), ELFMAG, SELFMAG) != 0) return false;
  uint16_t type = 0;
  std::memcpy(&type, &file[offsetof(Elf64_Ehdr, e_type)], sizeof type);
  return file[EI_CLASS] == ELFCLASS64 && file[EI_DATA] == ELFDATA2LSB && type == ET_REL;
}

Result<ModuleDebug> relocate_module(std::span<const uint8_t> file, const std::string& path) {
  if (file.size() > kMostBytes)
    return fail(Code::kBadDebugInfo, path, Error::kNoOffset, "it is larger than any module", "");
  return Relocator(file, path).run();
}

}  // namespace asof
