#include "tests/support/module_writer.h"

#include <elf.h>

#include <algorithm>
#include <stdexcept>

#include "tests/support/bytes.h"

namespace asof::test {

ModuleWriter::Section& ModuleWriter::section(const std::string& name, uint64_t flags,
                                             std::vector<uint8_t> bytes, uint64_t align) {
  Section s;
  s.name = name, s.flags = flags, s.bytes = std::move(bytes), s.align = align;
  sections_.push_back(std::move(s));
  symbols_.push_back({name, name, 0});
  return sections_.back();
}

ModuleWriter::Section& ModuleWriter::operator[](const std::string& name) {
  for (Section& s : sections_) {
    if (s.name == name) return s;
  }
  throw std::logic_error("unknown section " + name);
}

void ModuleWriter::symbol(const std::string& name, const std::string& section, uint64_t value) {
  symbols_.push_back({name, section, value});
}

void ModuleWriter::places(const std::string& name, const std::string& section,
                          const std::vector<uint64_t>& offsets) {
  Section& s = this->section(name, kAlloc, std::vector<uint8_t>(4 * offsets.size()), 1);
  for (size_t i = 0; i < offsets.size(); ++i)
    s.relocations.push_back({4 * i, R_X86_64_PC32, section, static_cast<int64_t>(offsets[i])});
}

std::vector<uint8_t> ModuleWriter::bytes() const {
  struct Header {
    uint32_t name = 0, type = SHT_NULL;
    uint64_t flags = 0, offset = 0, size = 0;
    uint32_t link = 0, info = 0;
    uint64_t align = 1, entry = 0;
  };
  ByteSink body, names, strings, symtab;
  body.zeros(sizeof(Elf64_Ehdr));
  names.u8(0), strings.u8(0), symtab.zeros(sizeof(Elf64_Sym));
  std::vector<Header> headers(1);
  const auto put = [&](const std::string& name, Header h, const std::vector<uint8_t>& bytes) {
    h.name = static_cast<uint32_t>(names.size());
    names.text(name), names.u8(0);
    body.align(16);
    h.offset = body.size();
    h.size = bytes.size();
    body.raw(bytes);
    headers.push_back(h);
  };
  const auto section_index = [&](const std::string& name) {
    for (size_t i = 0; i < sections_.size(); ++i) {
      if (sections_[i].name == name) return static_cast<uint16_t>(i + 1);
    }
    return uint16_t{SHN_UNDEF};
  };
  for (const Section& s : sections_)
    put(s.name,
        {.type = s.name.starts_with(".note") ? uint32_t{SHT_NOTE} : uint32_t{SHT_PROGBITS},
         .flags = s.flags,
         .align = s.align},
        s.bytes);
  for (const Symbol& y : symbols_) {
    // Symbols of sections have no name.
    const bool of_section = y.name == y.section;
    symtab.u32(of_section ? 0 : static_cast<uint32_t>(strings.size()));
    if (!of_section) strings.text(y.name), strings.u8(0);
    symtab.u8(ELF64_ST_INFO(STB_GLOBAL, of_section ? STT_SECTION : STT_FUNC)), symtab.u8(STV_DEFAULT);
    symtab.u16(section_index(y.section)), symtab.u64(y.value), symtab.u64(0);
  }
  const auto symtab_index = static_cast<uint32_t>(headers.size());
  put(".symtab", {.type = SHT_SYMTAB, .link = symtab_index + 1, .align = 8, .entry = sizeof(Elf64_Sym)},
      symtab.bytes());
  put(".strtab", {.type = SHT_STRTAB}, strings.bytes());
  for (const Section& s : sections_) {
    if (s.relocations.empty()) continue;
    ByteSink rela;
    for (const Relocation& r : s.relocations) {
      const auto y =
          std::find_if(symbols_.begin(), symbols_.end(), [&](const Symbol& x) { return x.name == r.symbol; });
      const auto index = static_cast<uint64_t>(y == symbols_.end() ? 0 : y - symbols_.begin() + 1);
      rela.u64(r.offset), rela.u64(index << 32U | r.type), rela.u64(static_cast<uint64_t>(r.addend));
    }
    put(".rela" + s.name,
        {.type = SHT_RELA,
         .link = symtab_index,
         .info = section_index(s.name),
         .align = 8,
         .entry = sizeof(Elf64_Rela)},
        rela.bytes());
  }
  const auto names_index = static_cast<uint16_t>(headers.size());
  put(".shstrtab", {.type = SHT_STRTAB}, {});
  headers.back().offset = body.size();
  headers.back().size = names.size();
  body.raw(names.bytes());
  body.align(8);
  const uint64_t table = body.size();
  for (const Header& h : headers) {
    body.u32(h.name), body.u32(h.type), body.u64(h.flags), body.u64(0), body.u64(h.offset), body.u64(h.size);
    body.u32(h.link), body.u32(h.info), body.u64(h.align), body.u64(h.entry);
  }
  ByteSink head;
  head.raw(std::vector<uint8_t>{0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT, ELFOSABI_NONE});
  head.zeros(8);
  head.u16(ET_REL), head.u16(EM_X86_64), head.u32(EV_CURRENT), head.u64(0), head.u64(0), head.u64(table),
      head.u32(0);
  head.u16(sizeof(Elf64_Ehdr)), head.u16(0), head.u16(0), head.u16(sizeof(Elf64_Shdr));
  head.u16(static_cast<uint16_t>(headers.size())), head.u16(names_index);
  std::vector<uint8_t> out = std::move(body).take();
  std::copy(head.bytes().begin(), head.bytes().end(), out.begin());
  return out;
}

}  // namespace asof::test
