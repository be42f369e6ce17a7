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

// Words as an assembler gives them (llvm-mc).
TEST(Arm64Insn, A64) {
  using enum Waypoint;
  using enum BranchKind;
  check(
      {
          {0xd503201f, kNone},                                      // nop
          {0x14000002, kDirect, kJump, 8},                          // b +8
          {0x17fffffd, kDirect, kJump, -12},                        // b -12
          {0x97fff7c2, kDirect, kCall, -8440, false, true},         // bl
          {0x54000049, kDirect, kCond, 8, true},                    // b.ls +8
          {0x54fffe69, kDirect, kCond, -52, true},                  // b.ls -52
          {0x54000050, kDirect, kCond, 8, true},                    // bc.eq +8
          {0xb4000040, kDirect, kCond, 8, true},                    // cbz x0, +8
          {0x35ffffe1, kDirect, kCond, -4, true},                   // cbnz w1, -4
          {0x37080043, kDirect, kCond, 8, true},                    // tbnz w3, #1, +8
          {0xb6f7ffc3, kDirect, kCond, -8, true},                   // tbz x3, #62, -8
          {0xd61f0200, kIndirect, kJumpInd},                        // br x16
          {0xd63f0020, kIndirect, kCallInd, 0, false, true},        // blr x1
          {0xd65f03c0, kIndirect, kRet},                            // ret
          {0xd65f0020, kIndirect, kRet},                            // ret x1
          {0xd71f0a11, kIndirect, kJumpInd},                        // braa x16, x17
          {0xd61f0a1f, kIndirect, kJumpInd},                        // braaz x16
          {0xd73f0c22, kIndirect, kCallInd, 0, false, true},        // blrab x1, x2
          {0xd63f083f, kIndirect, kCallInd, 0, false, true},        // blraaz x1
          {0xd65f0bff, kIndirect, kRet},                            // retaa
          {0xd65f0fff, kIndirect, kRet},                            // retab
          {0xd69f03e0, kIndirect, kFarRet, 0, false, false, true},  // eret
          {0xd69f0bff, kIndirect, kFarRet, 0, false, false, true},  // eretaa
          {0xd5033fdf, kSync},                                      // isb
          {0xd5033f9f, kNone},                                      // dsb sy
          {0xd50330ff, kNone},                                      // sb
          {0xd503207f, kNone},                                      // wfi, which takes no atom here
          {0xd5233060, kWait},                                      // tstart x0
          {0xd4000001, kNone},                                      // svc #0
          {0xd4200080, kTrap},                                      // brk #4
          {0xd4400000, kNone},                                      // hlt #0: semihosting goes on behind it
          {0x00000000, kTrap},                                      // udf #0
          {0xd53cd042, kNone},                                      // mrs
          {0xd50323bf, kNone},                                      // autiasp
      },
      kA64, kIp);
  EXPECT_EQ(decode(0xd503207f, kA64, kIp, true).waypoint, kWait);  // wfi
  EXPECT_EQ(decode(0xd503205f, kA64, kIp, true).waypoint, kWait);  // wfe
  EXPECT_EQ(decode(0xd5031003, kA64, kIp, true).waypoint, kWait);  // wfet x3
  EXPECT_EQ(decode(0xd503203f, kA64, kIp, true).waypoint, kNone);  // yield
}

TEST(Arm64Insn, A32) {
  using enum Waypoint;
  using enum BranchKind;
  check(
      {
          {0xe1a00000, kNone},                           // nop
          {0xea000000, kDirect, kJump, 8},               // b +8
          {0x1afffffd, kDirect, kCond, -4, true},        // bne -4
          {0xebfffffe, kDirect, kCall, 0, false, true},  // bl self
          {0x0b000001, kDirect, kCall, 12, true, true},  // bleq
          {0xfa000001, kDirect, kCall, 12, false, true, false,
           kT32},  // blx, to an address that T32 has at a word
          {0xfb000001, kDirect, kCall, 14, false, true, false, kT32},
          {0xe12fff1e, kIndirect, kRet},                            // bx lr
          {0xe12fff13, kIndirect, kJumpInd},                        // bx r3
          {0x012fff1e, kIndirect, kRet, 0, true},                   // bxeq lr
          {0xe12fff33, kIndirect, kCallInd, 0, false, true},        // blx r3
          {0xe8bd8010, kIndirect, kRet},                            // pop {r4, pc}
          {0xe89da800, kIndirect, kJumpInd},                        // ldm sp, {r11, sp, pc}
          {0xe49df004, kIndirect, kRet},                            // pop {pc}
          {0xe51ff004, kIndirect, kJumpInd},                        // ldr pc, [pc, #-4]
          {0xe1a0f00e, kIndirect, kRet},                            // mov pc, lr
          {0xe08ff003, kIndirect, kJumpInd},                        // add pc, pc, r3
          {0xe25ef004, kIndirect, kFarRet, 0, false, false, true},  // subs pc, lr, #4
          {0xe15f0001, kNone},                                      // cmp pc, r1
          {0xe10f0000, kNone},                                      // mrs
          {0xe129f000, kNone},                                      // msr
          {0xe0010392, kNone},                                      // mul
          {0xf57ff06f, kSync},                                      // isb
          {0xee070f95, kSync},                                      // mcr p15, 0, r0, c7, c5, 4
          {0xe1200070, kTrap},                                      // bkpt
      },
      kA32, 0x10000);
}

TEST(Arm64Insn, T32) {
  using enum Waypoint;
  using enum BranchKind;
  check(
      {
          {0xbf00, kNone},                                // nop
          {0xe002, kDirect, kJump, 8},                    // b +8
          {0xd1fd, kDirect, kCond, -2, true},             // bne -2
          {0xb108, kDirect, kCond, 6, true},              // cbz r0, +6
          {0xbb08, kDirect, kCond, 70, true},             // cbnz r0, +70
          {0x4770, kIndirect, kRet},                      // bx lr
          {0x4798, kIndirect, kCallInd, 0, false, true},  // blx r3
          {0xbd10, kIndirect, kRet},                      // pop {r4, pc}
          {0x46f7, kIndirect, kRet},                      // mov pc, lr
          {0xde00, kNone},                                // udf: its condition is none of a branch
          {0xdf00, kNone},                                // svc
          {0xf0008002, kDirect, kCond, 8, true},          // beq.w +8
          {0xf000b802, kDirect, kJump, 8},                // b.w +8
          {0xf7fffffe, kDirect, kCall, 0, false, true},   // bl self
          {0xf000e802, kDirect, kCall, 8, false, true, false, kA32},  // blx +8
          {0xe8bd8010, kIndirect, kRet},                              // pop.w {r4, pc}
          {0xf85df004, kIndirect, kJumpInd},                          // ldr.w pc, [sp, r4]
          {0xe8dff002, kIndirect, kJumpInd},                          // tbb
          {0xf3de8f04, kIndirect, kFarRet, 0, false, false, true},    // subs pc, lr, #4
          {0xf3bf8f6f, kSync},                                        // isb
          {0xf00fc005, kDirect, kCond, -4, true},                     // le lr, -4
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

}  // namespace
}  // namespace asof::arm64
