// What each machine's rules give the text store about the instructions at sites that are patched.
#include <gtest/gtest.h>

#include <vector>

#include "arch/arm64/patch_rules.h"
#include "arch/x86/patch_rules.h"

namespace asof::test {
namespace {

using Bytes = std::vector<uint8_t>;
using Kind = PatchRules::Kind;

TEST(PatchRules, X86) {
  const auto kind = x86::kPatchRules.kind;
  for (const Bytes& nop :
       {Bytes{0x90}, {0x66, 0x90}, {0x0f, 0x1f, 0}, {0x0f, 0x1f, 0x40, 0}, {0x0f, 0x1f, 0x44, 0, 0}})
    EXPECT_EQ(kind(nop), Kind::kNoOp);
  EXPECT_EQ(kind(Bytes{0xeb, 5}), Kind::kJump);
  EXPECT_EQ(kind(Bytes{0xe9, 1, 2, 3, 4}), Kind::kJump);
  for (const Bytes& other :
       {Bytes{}, {0xe8, 1, 2, 3, 4}, {0xe9, 1, 2, 3}, {0x90, 0x90}, {0x1f, 0x20, 0x03, 0xd5}})
    EXPECT_EQ(kind(other), Kind::kOther);
  EXPECT_EQ(x86::kPatchRules.breakpoint, uint8_t{0xcc});
}

TEST(PatchRules, Arm64) {
  const auto kind = arm64::kPatchRules.kind;
  EXPECT_EQ(kind(Bytes{0x1f, 0x20, 0x03, 0xd5}), Kind::kNoOp);
  EXPECT_EQ(kind(Bytes{0x04, 0, 0, 0x14}), Kind::kJump);        // b +16
  EXPECT_EQ(kind(Bytes{0xff, 0xff, 0xff, 0x17}), Kind::kJump);  // b -4
  for (const Bytes& other :
       {Bytes{}, {0x04, 0, 0, 0x94}, {0x1f, 0x20, 0x03}, {0x0f, 0x1f, 0x40, 0}})  // bl +16
    EXPECT_EQ(kind(other), Kind::kOther);
  EXPECT_FALSE(arm64::kPatchRules.breakpoint);
}

}  // namespace
}  // namespace asof::test
