#include "tools/board/pt_plugin/insn.h"

#include <gtest/gtest.h>

#include "tools/board/pt_plugin/msrs.h"

namespace asof::pt::test {
namespace {

using Bytes = std::vector<uint8_t>;

TEST(PtInsn, Branches) {
  const std::vector<std::pair<Bytes, Flow>> cases = {{{0x74, 5}, Flow::kCond},
                                                     {{0x0f, 0x85, 0, 0, 0, 0}, Flow::kCond},
                                                     {{0xe2, 0xfe}, Flow::kCond},
                                                     {{0x2e, 0x74, 5}, Flow::kCond},
                                                     {{0xeb, 0}, Flow::kJump},
                                                     {{0xe9, 0, 0, 0, 0}, Flow::kJump},
                                                     {{0xe8, 0, 0, 0, 0}, Flow::kCall},
                                                     {{0xff, 0xe0}, Flow::kJumpIndirect},
                                                     {{0x41, 0xff, 0x24, 0xc7}, Flow::kJumpIndirect},
                                                     {{0x3e, 0xff, 0xd0}, Flow::kCallIndirect},
                                                     {{0xff, 0x15, 0, 0, 0, 0}, Flow::kCallIndirect},
                                                     {{0xc3}, Flow::kRet},
                                                     {{0xf3, 0xc3}, Flow::kRet},
                                                     {{0xc2, 8, 0}, Flow::kRet},
                                                     {{0x0f, 0x05}, Flow::kFar},
                                                     {{0x48, 0x0f, 0x07}, Flow::kFar},
                                                     {{0xcc}, Flow::kFar},
                                                     {{0xcd, 0x80}, Flow::kFar},
                                                     {{0x48, 0xcf}, Flow::kIret},
                                                     {{0xff, 0x1f}, Flow::kFar}};
  for (const auto& [bytes, flow] : cases) {
    EXPECT_EQ(classify(bytes).kind, Insn::kBranch);
    EXPECT_EQ(classify(bytes).flow, flow) << std::hex << +bytes[0];
  }
}

TEST(PtInsn, BranchesToThemselves) {
  for (const Bytes& b : {Bytes{0xeb, 0xfe}, Bytes{0x74, 0xfe}, Bytes{0xe9, 0xfb, 0xff, 0xff, 0xff},
                         Bytes{0x0f, 0x85, 0xfa, 0xff, 0xff, 0xff}}) {
    EXPECT_TRUE(classify(b).to_itself);
  }
  for (const Bytes& b : {Bytes{0xeb, 0xfd}, Bytes{0xe8, 0, 0, 0, 0}, Bytes{0xff, 0xe0}, Bytes{0xc3}}) {
    EXPECT_FALSE(classify(b).to_itself);
  }
}

TEST(PtInsn, Others) {
  const std::vector<std::pair<Bytes, Insn>> cases = {
      {{0x90}, Insn::kPlain},
      {{0x40}, Insn::kPlain},  // 32-bit code: INC
      {{0xff, 0xc0}, Insn::kPlain},
      {{0x0f, 0xa2}, Insn::kCpuid},
      {{0x0f, 0x31}, Insn::kRdtsc},
      {{0x0f, 0x01, 0xf9}, Insn::kRdtsc},
      {{0x0f, 0x30}, Insn::kWrmsr},
      {{0x0f, 0x32}, Insn::kRdmsr},
      {{0x0f, 0x33}, Insn::kRdpmc},
      {{0x0f, 0x01, 0xc9}, Insn::kMwait},
      {{0x0f, 0x01, 0x1d, 0, 0, 0, 0}, Insn::kLidt},
      {{0xf4}, Insn::kHlt},
      {{0xfb}, Insn::kFlags},
      {{0xfa}, Insn::kFlags},
      {{0x9d}, Insn::kFlags},
      {{0xf3, 0x48, 0x0f, 0xae, 0xe0}, Insn::kPtwrite},
      {{0x0f, 0xae, 0xe0}, Insn::kPlain},
      {{0x48, 0x0f, 0xae, 0x27}, Insn::kPlain},  // XSAVE64
  };
  for (const auto& [bytes, kind] : cases) EXPECT_EQ(classify(bytes).kind, kind) << std::hex << +bytes[0];
  const InsnClass cr3 = classify(Bytes{0x41, 0x0f, 0x22, 0xdc});
  EXPECT_EQ(cr3.kind, Insn::kMovCr3);
  EXPECT_EQ(cr3.reg, 12);
}

TEST(PtInsn, PtwriteOperands) {
  const auto of = [](const Bytes& b, bool code64 = true) { return ptwrite_operand(b, code64); };
  EXPECT_EQ(of({0xf3, 0x49, 0x0f, 0xae, 0xe3})->base, 11);
  EXPECT_TRUE(of({0xf3, 0x49, 0x0f, 0xae, 0xe3})->eight_bytes);
  const auto sib = of({0xf3, 0x0f, 0xae, 0x64, 0xcd, 0xf8});  // -8(%rbp,%rcx,8)
  EXPECT_TRUE(sib->memory);
  EXPECT_EQ(sib->base, 5);
  EXPECT_EQ(sib->index, 1);
  EXPECT_EQ(sib->scale, 3);
  EXPECT_EQ(sib->displacement, -8);
  const auto rip = of({0xf3, 0x48, 0x0f, 0xae, 0x25, 0x10, 0, 0, 0});
  EXPECT_EQ(rip->base, PtwriteOperand::kNextIp);
  EXPECT_EQ(rip->displacement, 16);
  const auto absolute = of({0x64, 0xf3, 0x0f, 0xae, 0x24, 0x25, 0x10, 0, 0, 0});  // %fs:0x10
  EXPECT_EQ(absolute->base, PtwriteOperand::kNone);
  EXPECT_EQ(absolute->index, PtwriteOperand::kNone);
  EXPECT_EQ(absolute->segment, PtwriteOperand::Segment::kFs);
  EXPECT_EQ(absolute->displacement, 16);
  EXPECT_EQ(of({0xf3, 0x0f, 0xae, 0x25, 0x10, 0, 0, 0}, false)->base, PtwriteOperand::kNone);
}

// CPUID 0x14 announces what the unit does, and no more.
TEST(PtMsrs, CpuidAndRegisters) {
  CpuidResult r;
  ASSERT_TRUE(change_cpuid(0x14, 0, {}, r));
  EXPECT_EQ(r.ebx, 0x1bfU);
  EXPECT_EQ(r.ecx, 7U);
  ASSERT_TRUE(change_cpuid(0x15, 0, {}, r));
  EXPECT_EQ(r.ebx, 125U);
  EXPECT_EQ(r.eax, 3U);
  r = {};
  EXPECT_FALSE(change_cpuid(1, 0, {}, r));

  std::vector<uint8_t> ram(0x1000);
  Output output{ram};
  TraceUnit unit{{}, output};
  Msrs msrs{{}, unit, output};
  EXPECT_TRUE(msrs.write(0x580, 0x1234));
  EXPECT_EQ(unit.ranges[0], 0x1234U);
  EXPECT_EQ(msrs.read(0x580), 0x1234U);
  EXPECT_FALSE(msrs.write(0x10, 1));
  EXPECT_FALSE(msrs.read(0x10));
  msrs.set_topa_interrupt();
  EXPECT_EQ(msrs.read(0x38e), uint64_t{1} << 55);
  EXPECT_TRUE(msrs.write(0x390, uint64_t{1} << 55));
  EXPECT_EQ(msrs.read(0x38e), 0U);
}

}  // namespace
}  // namespace asof::pt::test
