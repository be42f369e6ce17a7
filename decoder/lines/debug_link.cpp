// .gnu_debuglink: the name and the checksum of the file that has a program's debug information.
#include <elfutils/libdwelf.h>
#include <gelf.h>

#include <array>

#include "decoder/lines/dwarf_lines.h"
#include "decoder/model/image.h"

namespace asof {

DebugLink debug_link(const std::string& path) {
  DebugLink out;
  const auto file = MappedFile::open(path);
  if (!file || (*file)->bytes().empty()) return out;
  elf_version(EV_CURRENT);
  // libelf takes a non-const pointer, but never writes through it.
  auto* const bytes = reinterpret_cast<char*>(const_cast<uint8_t*>((*file)->bytes().data()));
  if (Elf* elf = elf_memory(bytes, (*file)->bytes().size())) {
    GElf_Word crc = 0;
    if (const char* name = dwelf_elf_gnu_debuglink(elf, &crc)) out = {name, crc};
    elf_end(elf);
  }
  return out;
}

uint32_t debug_link_crc(const std::string& path) {
  constexpr auto kTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < table.size(); ++i) {
      uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = (c & 1U) != 0 ? 0xedb88320U ^ c >> 1U : c >> 1U;
      table[i] = c;
    }
    return table;
  }();
  const auto file = MappedFile::open(path);
  if (!file) return 0;
  uint32_t crc = ~0U;
  for (const uint8_t b : (*file)->bytes()) crc = kTable[(crc ^ b) & 0xffU] ^ crc >> 8U;
  return ~crc;
}

}  // namespace asof
