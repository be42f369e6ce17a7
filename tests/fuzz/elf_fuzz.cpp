// One ELF file, as everything that reads one: an image of code with symbols, a kernel module with its relocations, a
// file with line tables.
#include <memory>

#include "decoder/lines/debug_link.h"
#include "decoder/lines/dwarf_lines.h"
#include "decoder/model/image.h"
#include "decoder/module/module_elf.h"
#include "decoder/module/module_image.h"
#include "tests/fuzz/fuzz.h"

namespace {

// Within the file, whatever its headers say.
void check_inside(asof::fuzz::Bytes part, asof::fuzz::Bytes whole) {
  FUZZ_CHECK(part.empty() ||
             (part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size()));
}

void read_image(asof::fuzz::Bytes bytes) {
  const auto image = asof::ElfImage::parse(bytes, "fuzz", nullptr);
  if (!image) return;
  for (const auto& segment : (*image)->segments()) check_inside(segment.bytes, bytes);
  for (const auto& section : (*image)->sections()) check_inside(section.bytes, bytes);
  for (const auto& symbol : (*image)->symbols()) FUZZ_CHECK(symbol.name.size() <= bytes.size());
}

void read_module(asof::fuzz::Bytes bytes) {
  const auto module = asof::ModuleElf::parse(bytes, "fuzz.ko");
  if (!module) return;
  const asof::ModuleContext context{.name = "fuzz", .range = {0xffffffffc0000000, 0xffffffffc0010000}};
  const auto image = asof::make_module_image(*module, context, "fuzz.ko");
  if (!image) return;
  for (const auto& text : image->text) {
    FUZZ_CHECK(text.range.size() == text.bytes.size() && text.known.size() == text.bytes.size());
  }
}

void read_lines(asof::fuzz::Bytes bytes) {
  const std::string path = asof::fuzz::as_file(bytes);
  asof::debug_link(path);
  const auto lines = asof::DwarfLines::open(path);
  if (!lines) return;
  for (uint64_t address = 0; address < 0x4000; address += 0x80) (*lines)->find(address);
}

}  // namespace

FUZZ_TARGET(elf) {
  read_image(bytes);
  read_module(bytes);
  read_lines(bytes);
}
