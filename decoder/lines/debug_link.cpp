#include "decoder/lines/debug_link.h"

#include <elfutils/libdwelf.h>
#include <gelf.h>
#include <zlib.h>

#include <span>

#include "decoder/io/elf_over.h"
#include "decoder/model/image.h"

namespace asof {

DebugLink debug_link(const std::string& path) {
  DebugLink out;
  const auto file = MappedFile::open(path);
  if (!file || (*file)->bytes().empty()) return out;
  elf_version(EV_CURRENT);
  if (Elf* elf = elf_over((*file)->bytes())) {
    GElf_Word crc = 0;
    if (const char* name = dwelf_elf_gnu_debuglink(elf, &crc)) out = {name, crc};
    elf_end(elf);
  }
  return out;
}

uint32_t debug_link_crc(const std::string& path) {
  const auto file = MappedFile::open(path);
  if (!file) return 0;
  const std::span<const uint8_t> bytes = (*file)->bytes();
  return static_cast<uint32_t>(::crc32_z(0, bytes.data(), bytes.size()));
}

}  // namespace asof
