#include "arch/arm64/insn.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace asof::arm64 {
namespace {

constexpr Addr kIp = 0xffff800008010000;

Insn decode(uint32_t word, uint8_t mode = kA64, Addr ip = kIp, bool wfx = false) {
  std::array<uint8_t, 4> bytes;
  if (mode == kT32 && word > 0xffff) word = word << 16 | word >> 16;  // halfwords in memory order
  for (unsigned i = 0; i < 4; ++i) bytes[i] = static_cast<uint8_t>(word >> (8 * i));
  Insn out;
  EXPECT_EQ(decode_insn(bytes, ip, mode, wfx, out), InsnStatus::kOk);
  return out;
}

struct Expected {
  uint32_t word;
  Waypoint waypoint;
  BranchKind kind = BranchKind::kNone;
  int64_t offset = 0;  // of direct branches
  bool conditional = false;
  bool link = false;
  bool exception_return = false;
  uint8_t target_mode = 0;
};

void check(const std::vector<Expected>& all, uint8_t mode, Addr ip) {
  for (const Expected& e : all) {
    SCOPED_TRACE(testing::Message() << std::hex << e.word);
    const Insn i = decode(e.word, mode, ip);
    EXPECT_EQ(i.waypoint, e.waypoint);
    EXPECT_EQ(i.kind, e.kind);
    EXPECT_EQ(i.conditional, e.conditional);
    EXPECT_EQ(i.link, e.link);
    EXPECT_EQ(i.exception_return, e.exception_return);
    if (e.waypoint == Waypoint::kDirect) {
      EXPECT_EQ(i.target, ip + static_cast<uint64_t>(e.offset));
      EXPECT_EQ(i.target_mode, e.target_mode != 0 ? e.target_mode : mode);
    }
  }
}

// Words as an assembler produces them (llvm-mc).
TEST(Arm64Insn, A64) {
  check(
      {
          {0xd503201f, Waypoint::kNone},                                                  // nop
          {0x14000002, Waypoint::kDirect, BranchKind::kJump, 8},                          // b +8
          {0x17fffffd, Waypoint::kDirect, BranchKind::kJump, -12},                        // b -12
          {0x97fff7c2, Waypoint::kDirect, BranchKind::kCall, -8440, false, true},         // bl
          {0x54000049, Waypoint::kDirect, BranchKind::kCond, 8, true},                    // b.ls +8
          {0x54fffe69, Waypoint::kDirect, BranchKind::kCond, -52, true},                  // b.ls -52
          {0x54000050, Waypoint::kDirect, BranchKind::kCond, 8, true},                    // bc.eq +8
          {0xb4000040, Waypoint::kDirect, BranchKind::kCond, 8, true},                    // cbz x0, +8
          {0x35ffffe1, Waypoint::kDirect, BranchKind::kCond, -4, true},                   // cbnz w1, -4
          {0x37080043, Waypoint::kDirect, BranchKind::kCond, 8, true},                    // tbnz w3, #1, +8
          {0xb6f7ffc3, Waypoint::kDirect, BranchKind::kCond, -8, true},                   // tbz x3, #62, -8
          {0xd61f0200, Waypoint::kIndirect, BranchKind::kJumpInd},                        // br x16
          {0xd63f0020, Waypoint::kIndirect, BranchKind::kCallInd, 0, false, true},        // blr x1
          {0xd65f03c0, Waypoint::kIndirect, BranchKind::kRet},                            // ret
          {0xd65f0020, Waypoint::kIndirect, BranchKind::kRet},                            // ret x1
          {0xd71f0a11, Waypoint::kIndirect, BranchKind::kJumpInd},                        // braa x16, x17
          {0xd61f0a1f, Waypoint::kIndirect, BranchKind::kJumpInd},                        // braaz x16
          {0xd73f0c22, Waypoint::kIndirect, BranchKind::kCallInd, 0, false, true},        // blrab x1, x2
          {0xd63f083f, Waypoint::kIndirect, BranchKind::kCallInd, 0, false, true},        // blraaz x1
          {0xd65f0bff, Waypoint::kIndirect, BranchKind::kRet},                            // retaa
          {0xd65f0fff, Waypoint::kIndirect, BranchKind::kRet},                            // retab
          {0xd69f03e0, Waypoint::kIndirect, BranchKind::kFarRet, 0, false, false, true},  // eret
          {0xd69f0bff, Waypoint::kIndirect, BranchKind::kFarRet, 0, false, false, true},  // eretaa
          {0xd6ff03e0, Waypoint::kIndirect, BranchKind::kFarRet, 0, false, false, true},  // texit
          {0xd6ff07e0, Waypoint::kIndirect, BranchKind::kFarRet, 0, false, false, true},  // texit nb
          {0xd6bf03e0, Waypoint::kIndirect, BranchKind::kFarRet, 0, false, false, true},  // drps
          {0xd65f0be1, Waypoint::kIndirect, BranchKind::kRet},                            // retaasppcr x1
          {0xd5033fdf, Waypoint::kSync},                                                  // isb
          {0xd5033f9f, Waypoint::kNone},                                                  // dsb sy
          {0xd50330ff, Waypoint::kNone},                                                  // sb
          {0xd503207f, Waypoint::kNone},  // wfi, which takes no atom here
          {0xd5233060, Waypoint::kWait},  // tstart x0
          {0xd4000001, Waypoint::kNone},  // svc #0
          {0xd4200080, Waypoint::kTrap},  // brk #4
          {0xd4400000, Waypoint::kNone},  // hlt #0: semihosting continues after it
          {0x00000000, Waypoint::kTrap},  // udf #0
          {0xd53cd042, Waypoint::kNone},  // mrs
          {0xd50323bf, Waypoint::kNone},  // autiasp
      },
      kA64, kIp);
  EXPECT_EQ(decode(0xd503207f, kA64, kIp, true).waypoint, Waypoint::kWait);  // wfi
  EXPECT_EQ(decode(0xd503205f, kA64, kIp, true).waypoint, Waypoint::kWait);  // wfe
  EXPECT_EQ(decode(0xd5031003, kA64, kIp, true).waypoint, Waypoint::kWait);  // wfet x3
  EXPECT_EQ(decode(0xd503203f, kA64, kIp, true).waypoint, Waypoint::kNone);  // yield
}

// Words with fields that no branch of their group has: they are no instructions, and the flow goes nowhere else.
TEST(Arm64Insn, UnallocatedRegisterBranches) {
  for (const uint32_t w : {0xd61f005aU, 0xd61f0201U, 0xd61f0a10U, 0xd61f1200U, 0xd60f0200U, 0xd63f0021U,
                           0xd63f0830U, 0xd65f03c1U, 0xd65f0bdfU, 0xd69f0020U, 0xd69f03e1U, 0xd69f0bfeU,
                           0xd6bf0bffU, 0xd6bf0000U, 0xd6df0000U, 0xd71f0200U, 0xd73f0020U, 0xd75f0bffU}) {
    EXPECT_EQ(decode(w, kA64, kIp).waypoint, Waypoint::kNone) << std::hex << w;
    EXPECT_EQ(decode(w, kA64, kIp).kind, BranchKind::kNone) << std::hex << w;
  }
}

// FEAT_CMPBR, by the masks of Arm's machine readable description of A64: six conditions of registers (words, bytes,
// halfwords) and six of an immediate.
TEST(Arm64Insn, CompareAndBranch) {
  const Expected taken{0, Waypoint::kDirect, BranchKind::kCond, -8, true};
  std::vector<Expected> all;
  for (const uint32_t cc : {0U, 1U, 2U, 3U, 6U, 7U}) {
    for (const uint32_t group :
         {0x74000000U, 0xf4000000U, 0x74008000U, 0x7400c000U, 0x75000000U, 0xf5000000U}) {
      all.push_back(taken);
      all.back().word = group | cc << 21 | 0x3fc0 | 0x1fU << 16 | 5;
    }
  }
  all.push_back({0x74021fe1, Waypoint::kDirect, BranchKind::kCond, 255 * 4, true});   // cbgt w1, w2, +1020
  all.push_back({0xf5dfa001, Waypoint::kDirect, BranchKind::kCond, -256 * 4, true});  // cbeq x1, #63, -1024
  check(all, kA64, kIp);
}

TEST(Arm64Insn, UnallocatedCompareAndBranch) {
  std::vector<Expected> all;
  for (const uint32_t cc : {4U, 5U}) {  // no such condition
    for (const uint32_t group :
         {0x74000000U, 0xf4000000U, 0x74008000U, 0x7400c000U, 0x75000000U, 0xf5000000U})
      all.push_back({group | cc << 21 | 0x25, Waypoint::kNone});
  }
  for (const uint32_t cc : {0U, 1U, 2U, 3U, 6U, 7U}) {
    // A size that does not exist, bytes and halfwords of X registers, bit 14 beside an immediate.
    for (const uint32_t group :
         {0x74004000U, 0xf4004000U, 0xf4008000U, 0xf400c000U, 0x75004000U, 0xf5004000U, 0x7500c000U})
      all.push_back({group | cc << 21 | 0x25, Waypoint::kNone});
  }
  check(all, kA64, kIp);
  for (const Expected& e : all) EXPECT_FALSE(is_recent_branch(e.word)) << std::hex << e.word;
}

TEST(Arm64Insn, A32) {
  check(
      {
          {0xe1a00000, Waypoint::kNone},                                       // nop
          {0xea000000, Waypoint::kDirect, BranchKind::kJump, 8},               // b +8
          {0x1afffffd, Waypoint::kDirect, BranchKind::kCond, -4, true},        // bne -4
          {0xebfffffe, Waypoint::kDirect, BranchKind::kCall, 0, false, true},  // bl self
          {0x0b000001, Waypoint::kDirect, BranchKind::kCall, 12, true, true},  // bleq
          {0xfa000001, Waypoint::kDirect, BranchKind::kCall, 12, false, true, false,
           kT32},  // blx, to a word-aligned T32 address
          {0xfb000001, Waypoint::kDirect, BranchKind::kCall, 14, false, true, false, kT32},
          {0xe12fff1e, Waypoint::kIndirect, BranchKind::kRet},                      // bx lr
          {0xe12fff13, Waypoint::kIndirect, BranchKind::kJumpInd},                  // bx r3
          {0x012fff1e, Waypoint::kIndirect, BranchKind::kRet, 0, true},             // bxeq lr
          {0xe12fff33, Waypoint::kIndirect, BranchKind::kCallInd, 0, false, true},  // blx r3
          {0xe8bd8010, Waypoint::kIndirect, BranchKind::kRet},                      // pop {r4, pc}
          {0xe89da800, Waypoint::kIndirect, BranchKind::kJumpInd},                  // ldm sp, {r11, sp, pc}
          {0xe49df004, Waypoint::kIndirect, BranchKind::kRet},                      // pop {pc}
          {0xe51ff004, Waypoint::kIndirect, BranchKind::kJumpInd},                  // ldr pc, [pc, #-4]
          {0xe1a0f00e, Waypoint::kIndirect, BranchKind::kRet},                      // mov pc, lr
          {0xe08ff003, Waypoint::kIndirect, BranchKind::kJumpInd},                  // add pc, pc, r3
          {0xe25ef004, Waypoint::kIndirect, BranchKind::kFarRet, 0, false, false, true},  // subs pc, lr, #4
          {0xe15f0001, Waypoint::kNone},                                                  // cmp pc, r1
          {0xe10f0000, Waypoint::kNone},                                                  // mrs
          {0xe129f000, Waypoint::kNone},                                                  // msr
          {0xe0010392, Waypoint::kNone},                                                  // mul
          {0xf57ff06f, Waypoint::kSync},                                                  // isb
          {0xee070f95, Waypoint::kSync},  // mcr p15, 0, r0, c7, c5, 4
          {0xe1200070, Waypoint::kTrap},  // bkpt
      },
      kA32, 0x10000);
}

TEST(Arm64Insn, T32) {
  check(
      {
          {0xbf00, Waypoint::kNone},                                            // nop
          {0xe002, Waypoint::kDirect, BranchKind::kJump, 8},                    // b +8
          {0xd1fd, Waypoint::kDirect, BranchKind::kCond, -2, true},             // bne -2
          {0xb108, Waypoint::kDirect, BranchKind::kCond, 6, true},              // cbz r0, +6
          {0xbb08, Waypoint::kDirect, BranchKind::kCond, 70, true},             // cbnz r0, +70
          {0x4770, Waypoint::kIndirect, BranchKind::kRet},                      // bx lr
          {0x4798, Waypoint::kIndirect, BranchKind::kCallInd, 0, false, true},  // blx r3
          {0xbd10, Waypoint::kIndirect, BranchKind::kRet},                      // pop {r4, pc}
          {0x46f7, Waypoint::kIndirect, BranchKind::kRet},                      // mov pc, lr
          {0xde00, Waypoint::kNone},  // udf: its condition is not one of a branch
          {0xdf00, Waypoint::kNone},  // svc
          {0xf0008002, Waypoint::kDirect, BranchKind::kCond, 8, true},                      // beq.w +8
          {0xf000b802, Waypoint::kDirect, BranchKind::kJump, 8},                            // b.w +8
          {0xf7fffffe, Waypoint::kDirect, BranchKind::kCall, 0, false, true},               // bl self
          {0xf000e802, Waypoint::kDirect, BranchKind::kCall, 8, false, true, false, kA32},  // blx +8
          {0xe8bd8010, Waypoint::kIndirect, BranchKind::kRet},                              // pop.w {r4, pc}
          {0xf85df004, Waypoint::kIndirect, BranchKind::kJumpInd},  // ldr.w pc, [sp, r4]
          {0xe8dff002, Waypoint::kIndirect, BranchKind::kJumpInd},  // tbb
          {0xf3de8f04, Waypoint::kIndirect, BranchKind::kFarRet, 0, false, false, true},  // subs pc, lr, #4
          {0xf3bf8f6f, Waypoint::kSync},                                                  // isb
          {0xf00fc005, Waypoint::kDirect, BranchKind::kCond, -4, true},                   // le lr, -4
      },
      kT32, 0x10000);
  EXPECT_EQ(decode(0xbf08, kT32).it_block, 1);  // it eq
  EXPECT_EQ(decode(0xbf04, kT32).it_block, 2);  // itt eq
  EXPECT_EQ(decode(0xbf01, kT32).it_block, 4);  // itttt eq
  EXPECT_EQ(decode(0xbf08, kT32).length, 2);
  EXPECT_EQ(decode(0xf000b802, kT32).length, 4);
}

TEST(Arm64Insn, TooFewBytes) {
  Insn out;
  const std::array<uint8_t, 3> bytes{0x1f, 0x20, 0x03};
  EXPECT_EQ(decode_insn(bytes, kIp, kA64, false, out), InsnStatus::kTruncated);
  const std::array<uint8_t, 3> wide{0x00, 0xf0, 0x02};
  EXPECT_EQ(decode_insn(wide, kIp, kT32, false, out), InsnStatus::kTruncated);
  EXPECT_EQ(decode_insn({}, kIp, kT32, false, out), InsnStatus::kTruncated);
}

// Instructions that OpenCSD 1.3.3 does not know, and neighbouring encodings that it does know.
TEST(Arm64Insn, RecentBranches) {
  for (const uint32_t w :
       {0x74000041U, 0xf5c00041U, 0x5500001fU, 0x5520003fU, 0xd65f0be3U, 0xd6ff03e0U, 0xd6ff07e0U})
    EXPECT_TRUE(is_recent_branch(w)) << std::hex << w;
  for (const uint32_t w :
       {0x34000041U, 0x36000041U, 0x54000041U, 0xd65f0bffU, 0xd65f03c0U, 0xd69f03e0U, 0xd503201fU})
    EXPECT_FALSE(is_recent_branch(w)) << std::hex << w;
}

}  // namespace
}  // namespace asof::arm64
