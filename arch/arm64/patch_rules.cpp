#include "arch/arm64/patch_rules.h"

#include <algorithm>

namespace asof::arm64 {
namespace {

PatchRules::Kind kind(std::span<const uint8_t> b) {
  static constexpr uint8_t kNop[] = {0x1f, 0x20, 0x03, 0xd5};
  if (std::ranges::equal(b, kNop)) return PatchRules::Kind::kNoOp;
  const bool branch = b.size() == 4 && (b[3] & 0xfc) == 0x14;  // B
  return branch ? PatchRules::Kind::kJump : PatchRules::Kind::kOther;
}

}  // namespace

// A word is replaced by one store, so no breakpoint is in the way while it is patched.
const PatchRules kPatchRules{.kind = kind, .breakpoint = {}};

}  // namespace asof::arm64
