#include "decoder/patch_sites/arm64_trampoline.h"

#include <fmt/format.h>

#include <algorithm>

#include "decoder/patch_sites/arm64_words.h"
#include "decoder/patch_sites/jump_table.h"

namespace asof {
namespace {

constexpr uint64_t kPage = 0x1000, kMostPages = 4;  // FIX_ENTRY_TRAMP_TEXT1 to 4
constexpr const char *kBegin = "__entry_tramp_text_start", *kEnd = "__entry_tramp_text_end";

constexpr bool is(uint32_t word, uint32_t mask, uint32_t value) { return (word & mask) == value; }

// Reads words of the kernel one after another.
class Words {
 public:
  Words(const KernelSnapshot::Piece& piece, size_t at) : piece_(piece), at_(at) {}
  uint32_t next() {
    const uint32_t word = at_ + 4 <= piece_.bytes.size() ? arm64::word_at(piece_.bytes, at_) : 0;
    at_ += 4;
    return word;
  }
  uint32_t peek() const { return Words(*this).next(); }
  Addr address() const { return piece_.range.begin + at_; }  // of the next one

 private:
  const KernelSnapshot::Piece& piece_;
  size_t at_;
};

// MOVZ or MOVN and at least one MOVK to the same register.
std::optional<uint64_t> constant(Words& in, uint32_t& reg) {
  const uint32_t first = in.next();
  const bool negative = is(first, 0xff800000, 0x92800000);
  if (!negative && !is(first, 0xff800000, 0xd2800000)) return std::nullopt;
  reg = first & 31U;
  uint64_t value = uint64_t{(first >> 5U) & 0xffffU} << (16 * ((first >> 21U) & 3U));
  if (negative) value = ~value;
  bool more = false;
  while (is(in.peek(), 0xff80001f, 0xf2800000 | reg)) {
    const uint32_t word = in.next();
    const unsigned shift = 16 * ((word >> 21U) & 3U);
    value = (value & ~(uint64_t{0xffff} << shift)) | uint64_t{(word >> 5U) & 0xffffU} << shift;
    more = true;
  }
  return more ? std::optional(value) : std::nullopt;
}

// ADRP and ADD to a register of their own.
std::optional<Addr> symbol_address(Words& in, uint32_t& reg) {
  const Addr at = in.address();
  const uint32_t page = in.next(), low = in.next();
  reg = page & 31U;
  if (!is(page, 0x9f000000, 0x90000000) || !is(low, 0xffc003ff, 0x91000000 | reg | reg << 5U))
    return std::nullopt;
  const uint64_t pages = ((page >> 5U) & 0x7ffffU) << 2U | ((page >> 29U) & 3U);
  const auto distance = static_cast<int64_t>(pages << 43U) >> 31U;  // 21 bits, signed, of pages
  return (at & ~(kPage - 1)) + static_cast<uint64_t>(distance) + ((low >> 10U) & 0xfffU);
}

std::optional<Trampoline> trampoline_at(const KernelSnapshot::Piece& piece, size_t at) {
  Words in(piece, at);
  uint32_t to = 0, other = 0, again = 0;
  const auto alias = constant(in, to);
  if (!alias || !is_kernel_address(*alias) || *alias % kPage != 0) return std::nullopt;
  const auto symbol = symbol_address(in, other);
  if (!symbol || in.next() != (0x8b000000 | other << 16U | to << 5U | to)) return std::nullopt;
  const auto begin = symbol_address(in, again);
  if (!begin || again != other || in.next() != (0xcb000000 | other << 16U | to << 5U | to))
    return std::nullopt;
  if (*begin % kPage != 0 || *symbol - *begin >= kMostPages * kPage) return std::nullopt;
  return Trampoline{*alias, *begin};
}

}  // namespace

std::optional<Trampoline> find_trampoline(const KernelText& kernel) {
  if (kernel.start() == nullptr) return std::nullopt;
  for (const KernelSnapshot::Piece& piece : kernel.start()->text()) {
    for (size_t at = 0; at + 4 <= piece.bytes.size(); at += 4) {
      if ((piece.bytes[at + 3] & 0xbfU) != 0x92) continue;  // MOVZ, MOVN
      if (const auto found = trampoline_at(piece, at)) return found;
    }
  }
  return std::nullopt;
}

void add_trampoline(const KernelText& kernel, const TextFile* vmlinux, Builder& builder, SymbolTable& symbols,
                    NoticeBook& notices) {
  const auto found = find_trampoline(kernel);
  if (!found) return;
  AddrRange image = range_of(found->image, kPage);
  const KernelSnapshot& start = *kernel.start();
  bool named = false;
  std::optional<Addr> slide;
  if (vmlinux != nullptr && vmlinux->elf && vmlinux->elf->machine() == start.machine()) {
    const ElfNames linked(vmlinux->bytes);
    slide = kernel_slide(linked, start.kallsyms());
    const auto end = linked.find(kEnd);
    if (slide && linked.find(kBegin) == image.begin - *slide && end)
      image.end = std::min(*end + *slide, range_of(image.begin, kMostPages * kPage).end);
    if (slide && !image.empty()) {
      linked.for_each([&](std::string_view name, Addr address) {
        const Addr at = address + *slide;
        if (!image.contains(at) || name.empty() || name.starts_with('$') || name == kBegin) return;
        const Addr runs = at - image.begin + found->alias;
        symbols.add({.range = {runs, runs}, .name = std::string(name), .dso = "[kernel.kallsyms]"});
        named = true;
      });
    }
  }
  if (image.empty()) return;
  const AddrRange alias = range_of(found->alias, image.size());
  if (!named) symbols.add({.range = alias, .name = ".entry.tramp.text", .dso = "[kernel.kallsyms]"});
  Layer layer{.range = alias, .bytes = start.raw(image), .rank = kRankSnapshot};
  if (!layer.bytes.empty()) {
    layer.origin = builder.add_origin({.kind = start.kind(), .name = start.path(), .build_id = {}});
    builder.keep(start.owner());
    return builder.add_layer(layer);
  }
  if (!slide) return;
  for (const ElfSegment& segment : vmlinux->elf->segments()) {
    const Addr linked = image.begin - *slide;
    if (linked < segment.address || linked - segment.address > segment.bytes.size() ||
        segment.bytes.size() - (linked - segment.address) < image.size())
      continue;
    layer.bytes = segment.bytes.subspan(linked - segment.address, image.size());
    layer.rank = kRankFallback;
    layer.origin =
        builder.add_origin({.kind = OriginKind::kFile, .name = vmlinux->path, .build_id = vmlinux->build_id});
    builder.keep(vmlinux->owner);
    notices.error(
        Code::kKernelTextFromFile, vmlinux->path,
        fmt::format("the code that enters the kernel at {:#x} (KPTI) comes from this file, without what was "
                    "patched in it at boot",
                    alias.begin),
        "nothing copies it from memory");
    return builder.add_layer(layer);
  }
}

}  // namespace asof
