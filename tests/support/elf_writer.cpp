#include "tests/support/elf_writer.h"

#include <elf.h>

#include "tests/support/bytes.h"

namespace asof::test {

namespace {

constexpr uint64_t kPage = 0x1000;

void put_ident(ByteSink& s, uint16_t type, uint16_t machine, uint64_t entry, uint16_t phnum, uint64_t shoff,
               uint16_t shnum, uint16_t shstrndx) {
  s.raw(std::vector<uint8_t>{0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT, ELFOSABI_NONE});
  s.zeros(8);
  s.u16(type), s.u16(machine), s.u32(EV_CURRENT);
  s.u64(entry), s.u64(sizeof(Elf64_Ehdr)), s.u64(shoff), s.u32(0);
  s.u16(sizeof(Elf64_Ehdr)), s.u16(sizeof(Elf64_Phdr)), s.u16(phnum);
  s.u16(shnum > 0 ? sizeof(Elf64_Shdr) : 0), s.u16(shnum), s.u16(shstrndx);
}

void put_phdr(ByteSink& s, uint32_t type, uint32_t flags, uint64_t offset, uint64_t address, uint64_t size,
              uint64_t align) {
  s.u32(type), s.u32(flags), s.u64(offset), s.u64(address), s.u64(0), s.u64(size), s.u64(size), s.u64(align);
}

struct Shdr {
  uint32_t name = 0, type = SHT_NULL;
  uint64_t flags = 0, address = 0, offset = 0, size = 0;
  uint32_t link = 0, info = 0;
  uint64_t align = 1, entsize = 0;
};

void put_shdr(ByteSink& s, const Shdr& h) {
  s.u32(h.name), s.u32(h.type), s.u64(h.flags), s.u64(h.address), s.u64(h.offset), s.u64(h.size);
  s.u32(h.link), s.u32(h.info), s.u64(h.align), s.u64(h.entsize);
}

}  // namespace

std::vector<uint8_t> make_core(const std::vector<CoreSegment>& segments, uint16_t machine) {
  ByteSink s;
  put_ident(s, ET_CORE, machine, 0, static_cast<uint16_t>(segments.size()), 0, 0, 0);
  uint64_t offset = kPage;
  for (const CoreSegment& g : segments) {
    put_phdr(s, PT_LOAD, PF_R | PF_W | PF_X, offset, g.address, g.bytes.size(), kPage);
    offset += (g.bytes.size() + kPage - 1) / kPage * kPage;
  }
  for (const CoreSegment& g : segments) {
    s.align(kPage);
    s.raw(g.bytes);
  }
  return std::move(s).take();
}

std::vector<uint8_t> make_executable(const ExecutableSpec& spec) {
  // .text on one page, followed by the note, symbols, strings and section headers.
  ByteSink note;
  if (!spec.build_id.empty()) {
    note.u32(4), note.u32(static_cast<uint32_t>(spec.build_id.size())), note.u32(NT_GNU_BUILD_ID);
    note.c_string("GNU", 4);
    note.raw(spec.build_id);
    note.align(4);
  }
  ByteSink symtab, strtab;
  strtab.u8(0);
  symtab.zeros(sizeof(Elf64_Sym));
  for (const ExecutableSymbol& y : spec.symbols) {
    symtab.u32(static_cast<uint32_t>(strtab.size()));
    symtab.u8(ELF64_ST_INFO(STB_GLOBAL, STT_FUNC)), symtab.u8(STV_DEFAULT), symtab.u16(1);
    symtab.u64(y.address), symtab.u64(y.size);
    strtab.text(y.name), strtab.u8(0);
  }
  ByteSink names;
  const auto name = [&](const char* text) {
    const auto at = static_cast<uint32_t>(names.size());
    names.text(text), names.u8(0);
    return at;
  };
  name("");
  const uint64_t note_at = (kPage + spec.text.size() + 15) / 16 * 16;
  const uint64_t symtab_at = (note_at + note.size() + 15) / 16 * 16;
  const uint64_t strtab_at = symtab_at + symtab.size();
  Shdr text{name(".text"), SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, spec.address, kPage, spec.text.size()};
  text.align = 16;
  Shdr notes{name(".note.gnu.build-id"),     SHT_NOTE, SHF_ALLOC,
             spec.address + note_at - kPage, note_at,  note.size()};
  notes.align = 4;
  Shdr symbols{name(".symtab"), SHT_SYMTAB, 0, 0, symtab_at, symtab.size(), 4, 1, 8, sizeof(Elf64_Sym)};
  Shdr strings{name(".strtab"), SHT_STRTAB, 0, 0, strtab_at, strtab.size()};
  const uint32_t shstr_name = name(".shstrtab");
  const uint64_t names_at = strtab_at + strtab.size();
  Shdr shstr{shstr_name, SHT_STRTAB, 0, 0, names_at, names.size()};
  const uint64_t shdrs_at = (names_at + names.size() + 7) / 8 * 8;

  ByteSink s;
  const bool with_note = note.size() > 0;
  put_ident(s, ET_EXEC, spec.machine, spec.address, with_note ? 2 : 1, shdrs_at, 6, 5);
  put_phdr(s, PT_LOAD, PF_R | PF_X, kPage, spec.address, note_at + note.size() - kPage, kPage);
  if (with_note) put_phdr(s, PT_NOTE, PF_R, note_at, spec.address + note_at - kPage, note.size(), 4);
  s.zeros(kPage - s.size());
  s.raw(spec.text);
  s.align(16);
  s.raw(note.bytes());
  s.align(16);
  s.raw(symtab.bytes());
  s.raw(strtab.bytes());
  s.raw(names.bytes());
  s.align(8);
  for (const Shdr& h : {Shdr{}, text, notes, symbols, strings, shstr}) put_shdr(s, h);
  return std::move(s).take();
}

}  // namespace asof::test
