// Code that a copy of kcore has and no symbol names: JITed classic BPF (seccomp and socket filters;
// net/core/filter.c bpf_migrate_filter() never reaches bpf_prog_kallsyms_add()), pages of ITS thunks that
// modules branch through (arch/x86/kernel/alternative.c its_allocate_thunk()), trampolines of BPF struct_ops
// before Linux 6.13. No record says when such code comes or goes, so its bytes are followed, but never
// certain.
#include <algorithm>

#include "decoder/io/address_ranges.h"
#include "decoder/kernel_text/kernel_text.h"

namespace asof {
namespace {

constexpr Addr kPage = 4096;
constexpr uint16_t kX8664 = 62;  // EM_X86_64
// MODULES_VADDR without KASLR (with it: higher) to the end of the fixmap
// (Documentation/arch/x86/x86_64/mm.rst).
constexpr AddrRange kModulesOfX86{0xffffffffa0000000, 0xffffffffff000000};
constexpr size_t kChunk = 64;              // BPF_PROG_CHUNK_SIZE: what is allocated of a page of programs
constexpr size_t kMostPieces = 1U << 16U;  // the rest stays unknown

// Unused memory: zeros are a hole, 0xcc is what the kernel fills free memory for code with.
bool is_free(std::span<const uint8_t> chunk) {
  const uint8_t fill = chunk[0];
  return (fill == 0 || fill == 0xcc) &&
         std::all_of(chunk.begin(), chunk.end(), [fill](uint8_t b) { return b == fill; });
}

}  // namespace

// The range that perf would copy: from the first to the last symbol of a module or of generated code.
AddrRange KernelSnapshot::module_span() const {
  if (machine() == kX8664) return kModulesOfX86;
  AddrRange span{UINT64_MAX, 0};
  const auto widen = [&span](Addr first, Addr last) {
    if (!is_kernel_address(first)) return;
    span.begin = std::min(span.begin, first & ~(kPage - 1));
    span.end = std::max(span.end, range_of(last & ~(kPage - 1), kPage).end);
  };
  for (const KernelModule& m : modules_) widen(m.range.begin, m.range.end - 1);
  if (!kallsyms_) return span;
  for (const KernelSymbol& s : kallsyms_->symbols()) {
    if (!s.module.empty()) widen(s.addr, s.addr);
  }
  return span;
}

std::vector<KernelSnapshot::Piece> KernelSnapshot::unclaimed(std::span<const AddrRange> poked) const {
  std::vector<AddrRange> holes(poked.begin(), poked.end());
  for (const Piece& piece : text_) holes.push_back(piece.range);
  for (const AddrRange& data : module_data_) holes.push_back(data);
  holes = merged_ranges(std::move(holes));
  std::vector<Piece> out;
  const auto add_used = [&](const ElfSegment& segment, AddrRange part) {
    Addr begin = part.begin;
    const auto flush = [&](Addr end) {
      if (begin < end && out.size() < kMostPieces)
        out.push_back({{begin, end}, segment.bytes.subspan(begin - segment.address, end - begin), {}});
    };
    for (Addr at = part.begin; at < part.end;) {
      const Addr next = std::min((at | (kChunk - 1)) + 1, part.end);
      if (is_free(segment.bytes.subspan(at - segment.address, next - at))) {
        flush(at);
        begin = next;
      }
      at = next;
    }
    flush(part.end);
  };
  const AddrRange span = module_span();
  for (const ElfSegment& segment : kcore_->segments()) {
    const AddrRange part = range_of(segment.address, segment.bytes.size()).intersect(span);
    if (!part.empty()) each_uncovered(part, holes, [&](AddrRange r) { add_used(segment, r); });
  }
  return out;
}

// Poked sites are left to the pokes: bytes of something else than what was poked are no evidence of a missing
// record.
void KernelText::add_unclaimed(Builder& builder) {
  std::vector<AddrRange> poked;
  for (const KernelSnapshot* copy : {start_.get(), end_.get()}) {
    if (copy == nullptr) continue;
    const AddrRange span = copy->module_span();
    for (const Poke& p : side_.pokes) {
      const AddrRange site = range_of(p.addr, std::max(p.old_bytes.size(), p.new_bytes.size()));
      if (site.overlaps(span)) poked.push_back(site);
    }
  }
  poked = merged_ranges(std::move(poked));
  for (const KernelSnapshot* copy : {start_.get(), end_.get()}) {
    if (copy == nullptr) continue;
    const std::vector<KernelSnapshot::Piece> pieces = copy->unclaimed(poked);
    if (pieces.empty()) continue;
    builder.keep(copy->owner());
    const OriginRef origin = builder.add_origin({.kind = copy->kind(), .name = copy->path(), .build_id = {}});
    for (const KernelSnapshot::Piece& piece : pieces)
      builder.add_layer({.range = piece.range,
                         .bytes = piece.bytes,
                         .rank = kRankUnclaimed,
                         .origin = origin,
                         .unsure = true});
  }
}

}  // namespace asof
