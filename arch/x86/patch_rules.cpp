#include "arch/x86/patch_rules.h"

#include <algorithm>

namespace asof::x86 {
namespace {

// The NOPs that kernels put at patch sites (arch/x86/include/asm/nops.h).
bool is_no_op(std::span<const uint8_t> b) {
  static constexpr uint8_t kNop1[] = {0x90}, kNop2[] = {0x66, 0x90}, kNop3[] = {0x0f, 0x1f, 0x00},
                           kNop4[] = {0x0f, 0x1f, 0x40, 0x00}, kNop5[] = {0x0f, 0x1f, 0x44, 0x00, 0x00};
  static constexpr std::span<const uint8_t> kForms[] = {kNop1, kNop2, kNop3, kNop4, kNop5};
  return std::ranges::any_of(kForms, [b](std::span<const uint8_t> n) { return std::ranges::equal(b, n); });
}

PatchRules::Kind kind(std::span<const uint8_t> b) {
  if (is_no_op(b)) return PatchRules::Kind::kNoOp;
  const bool jump = (b.size() == 2 && b[0] == 0xeb) || (b.size() == 5 && b[0] == 0xe9);
  return jump ? PatchRules::Kind::kJump : PatchRules::Kind::kOther;
}

}  // namespace

const PatchRules kPatchRules{.kind = kind, .breakpoint = 0xcc};

}  // namespace asof::x86
