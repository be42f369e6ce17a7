#include "decoder/module/module_elf.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>

#include "decoder/io/reader.h"

namespace asof {
namespace {

using Bytes = std::span<const uint8_t>;

constexpr size_t kMostSections = 65279;  // SHN_LORESERVE - 1; modules have fewer than a hundred

// Part of the file; empty, and `ok` false, when it lies outside.
Bytes part(Bytes file, uint64_t offset, uint64_t size, bool& ok) {
  if (offset > file.size() || size > file.size() - offset) {
    ok = false;
    return {};
  }
  return file.subspan(offset, size);
}

std::string_view string_at(Bytes table, uint64_t offset) {
  if (offset >= table.size()) return {};
  const auto rest = table.subspan(offset);
  const auto end = std::find(rest.begin(), rest.end(), uint8_t{0});
  return {reinterpret_cast<const char*>(rest.data()), static_cast<size_t>(end - rest.begin())};
}

struct Header {
  uint32_t name = 0, type = 0, link = 0, info = 0;
  uint64_t flags = 0, offset = 0, size = 0, align = 0;
};

Header read_header(Reader& r) {
  Header h;
  h.name = r.u32();
  h.type = r.u32();
  h.flags = r.u64();
  r.u64();  // address: 0
  h.offset = r.u64();
  h.size = r.u64();
  h.link = r.u32();
  h.info = r.u32();
  h.align = r.u64();
  r.u64();  // entry size
  return h;
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
  Reader r(file);
  const Bytes ident = r.take(EI_NIDENT);
  const uint16_t type = r.u16();
  const uint16_t machine = r.u16();
  r.skip(20);  // version, entry, program headers
  const uint64_t table = r.u64();
  r.skip(10);  // flags, sizes of headers, number of program headers
  const uint16_t entry = r.u16();
  const uint16_t count = r.u16();
  const uint16_t names_at = r.u16();
  if (!r.ok() || ident[0] != 0x7f || ident[1] != 'E' || ident[2] != 'L' || ident[3] != 'F')
    return bad("no ELF file");
  if (ident[EI_CLASS] != ELFCLASS64 || ident[EI_DATA] != ELFDATA2LSB || machine != EM_X86_64 ||
      type != ET_REL)
    return bad("no relocatable file for x86-64");
  if (entry != sizeof(Elf64_Shdr) || count == 0 || count > kMostSections) return bad("no section headers");
  bool ok = true;
  const Bytes headers = part(file, table, uint64_t{count} * sizeof(Elf64_Shdr), ok);
  if (!ok) return bad("section headers outside of the file");
  std::vector<Header> list;
  list.reserve(count);
  Reader hr(headers);
  for (uint16_t i = 0; i < count; ++i) list.push_back(read_header(hr));
  const Bytes names = names_at < count ? part(file, list[names_at].offset, list[names_at].size, ok) : Bytes();
  ModuleElf out;
  for (const Header& h : list) {
    ModuleSection s{.name = string_at(names, h.name),
                    .type = h.type,
                    .flags = h.flags,
                    .size = h.size,
                    .align = std::max<uint64_t>(h.align, 1),
                    .bytes = {}};
    if (h.type != SHT_NOBITS && h.type != SHT_NULL) s.bytes = part(file, h.offset, h.size, ok);
    out.sections_.push_back(s);
  }
  if (!ok) return bad("a section outside of the file");
  out.relocations_.resize(count);
  for (uint16_t i = 0; i < count; ++i) {
    Reader body(out.sections_[i].bytes);
    if (list[i].type == SHT_SYMTAB && out.symbols_.empty()) {
      const Bytes strings = list[i].link < count ? out.sections_[list[i].link].bytes : Bytes();
      while (body.left() >= sizeof(Elf64_Sym)) {
        ModuleSymbol s;
        s.name = string_at(strings, body.u32());
        body.skip(2);
        s.section = body.u16();
        s.value = body.u64();
        body.skip(8);
        out.symbols_.push_back(s);
      }
    } else if (list[i].type == SHT_RELA && list[i].info < count) {
      auto& to = out.relocations_[list[i].info];
      while (body.left() >= sizeof(Elf64_Rela)) {
        ModuleRelocation rel;
        rel.offset = body.u64();
        const uint64_t info = body.u64();
        rel.type = static_cast<uint32_t>(info);
        rel.symbol = static_cast<uint32_t>(info >> 32U);
        rel.addend = static_cast<int64_t>(body.u64());
        to.push_back(rel);
      }
      std::stable_sort(to.begin(), to.end(),
                       [](const auto& a, const auto& b) { return a.offset < b.offset; });
    }
  }
  return out;
}

}  // namespace asof
