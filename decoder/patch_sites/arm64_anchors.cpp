#include "decoder/patch_sites/arm64_anchors.h"

#include <algorithm>
#include <vector>

#include "decoder/patch_sites/arm64_words.h"

namespace asof {
namespace {

// Where a B or BL at `at` goes.
std::optional<Addr> direct_target(uint32_t word, Addr at) {
  constexpr uint32_t kMask = 0x7c000000, kBranch = 0x14000000;
  if ((word & kMask) != kBranch) return std::nullopt;
  const auto words = static_cast<int32_t>(word << 6U) >> 6U;
  return at + 4 * static_cast<uint64_t>(int64_t{words});
}

}  // namespace

Addr find_patch_text_cb(const KernelText& kernel) {
  const Kallsyms* names = kernel.start() == nullptr ? nullptr : kernel.start()->kallsyms();
  if (names == nullptr) return 0;
  const auto callback = names->address("aarch64_insn_patch_text_cb"),
             patch = names->address("aarch64_insn_patch_text");
  if (!callback || !patch) return 0;
  std::vector<AddrRange> kprobes;
  for (const char* name : {"arch_arm_kprobe", "arch_disarm_kprobe"}) {
    if (const auto at = names->address(name)) kprobes.push_back({*at, names->next(*at)});
  }
  bool called = false;
  for (const KernelSnapshot::Piece& piece : kernel.start()->text()) {
    for (size_t at = 0; at + 4 <= piece.bytes.size(); at += 4) {
      const Addr from = piece.range.begin + at;
      if (direct_target(arm64::word_at(piece.bytes, at), from) != *patch) continue;
      if (!std::ranges::any_of(kprobes, [from](const AddrRange& f) { return f.contains(from); })) return 0;
      called = true;
    }
  }
  return called ? *callback : 0;
}

}  // namespace asof
