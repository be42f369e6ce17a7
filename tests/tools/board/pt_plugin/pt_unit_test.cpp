// Branches, enables and filters (SDM vol. 3, table "Packet Generation under Different Enable Conditions").
#include "tests/tools/board/pt_plugin/pt_fixture.h"

namespace asof::pt::test {
namespace {

class PtUnit : public PtFixture {};

// jne +2 at 0; nop nop; call 0x10 at 4; jmp rax at 9; 0x10: ret; 0x20: nop, ret.
x86::test::Bytes small_program() {
  x86::test::Bytes b(0x40, 0x90);
  const auto set = [&](size_t at, std::initializer_list<uint8_t> bytes) {
    std::copy(bytes.begin(), bytes.end(), b.begin() + static_cast<std::ptrdiff_t>(at));
  };
  set(0, {0x75, 0x02});
  set(4, {0xe8, 0x07, 0, 0, 0});
  set(9, {0xff, 0xe0});
  set(0x10, {0xc3});
  set(0x21, {0xc3});
  return b;
}

TEST_F(PtUnit, FirstEnableHasPsbPlus) {
  enable(kBoth | kTscEn | kMtcEn, kCode);
  EXPECT_EQ(packets(), "psb tsc tma cbr pip psbend mode:1 pge:0");
  EXPECT_NE(unit.status() >> 32 & 0x1ffff, 0U);
}

// Case 2d: PacketByteCnt is not 0; no PSB, and an address that needs nothing before it.
TEST_F(PtUnit, LaterEnableHasTimeAndRatio) {
  enable(kBoth | kTscEn | kMtcEn, kCode);
  disable(kCode);
  const uint64_t before = unit.written();
  enable(kBoth | kTscEn | kMtcEn, kCode + 2);
  EXPECT_EQ(packets_after(before), "tsc tma cbr mode:1 pge:2");
  EXPECT_EQ(unit.written() - before, 8 + 7 + 4 + 2 + 7U);
  disable(kCode + 2);
  const uint64_t after = unit.written();
  unit.write_status(0);
  enable(kBoth, kCode);
  EXPECT_EQ(packets_after(after), "psb cbr pip psbend mode:1 pge:0");
}

TEST_F(PtUnit, BranchesDecode) {
  decoder.code(kCode, small_program());
  enable(kBoth, kCode);
  for (const bool taken : {true, false, true}) {
    branch(Flow::kCond, kCode, 2, taken ? kCode + 4 : kCode + 2);
    if (!taken) plain({kCode + 2, kCode + 3});
    branch(Flow::kCall, kCode + 4, 5, kCode + 0x10);
    branch(Flow::kRet, kCode + 0x10, 1, kCode + 9);  // compressed
    branch(Flow::kJumpIndirect, kCode + 9, 2, taken ? kCode + 0x20 : kCode);
    if (taken) {
      plain({kCode + 0x20});
      branch(Flow::kRet, kCode + 0x21, 1, kCode);  // no call
    }
  }
  disable(kCode);
  EXPECT_EQ(packets(),
            "psb cbr pip psbend mode:1 pge:0 tnt:11 tip:20 tip:0 tnt:01 tip:0 tnt:11 tip:20 tip:0 fup:0 pgd");
  expect_both();
}

TEST_F(PtUnit, NoReturnCompression) {
  decoder.code(kCode, small_program());
  enable(kBoth | kDisRetC, kCode + 4);
  branch(Flow::kCall, kCode + 4, 5, kCode + 0x10);
  branch(Flow::kRet, kCode + 0x10, 1, kCode + 9);
  disable(kCode + 9);
  EXPECT_EQ(packets(), "psb cbr pip psbend mode:1 pge:4 tip:9 fup:9 pgd");
  expect_both();
}

TEST_F(PtUnit, SixOutcomesInAPacket) {
  decoder.code(kCode, {0x75, 0xfe});
  enable(kBoth, kCode);
  for (int i = 0; i < 8; ++i) branch(Flow::kCond, kCode, 2, kCode);
  EXPECT_EQ(packets(), "psb cbr pip psbend mode:1 pge:0 tnt:111111");
  disable(kCode);
  EXPECT_EQ(packets_after(unit.written() - 5), "tnt:11 fup:0 pgd");
  expect_both();
}

// Cases 11e, 13c: FUP with the interrupted address; TIP.PGD has no address where ContextEn is cleared.
TEST_F(PtUnit, Interruptions) {
  decoder.code(kCode, x86::test::Bytes(16, 0x90)).code(kUserCode, x86::test::Bytes(16, 0x90));
  enable(kUser | kBranchEn, kUserCode);
  plain({kUserCode, kUserCode + 1});
  unit.interrupt({kUserCode + 2, {}, {}}, kernel(kCode), tsc);
  branch(Flow::kIret, kCode, 1, kUserCode + 2);
  plain({kUserCode + 2});
  disable(kUserCode + 3);
  EXPECT_EQ(packets(), "psb cbr psbend mode:1 pge:1000 fup:1002 pgd pge:1002 fup:1003 pgd");
  expect_both();
}

TEST_F(PtUnit, UserCodeOf32Bits) {
  // 32-bit: inc %eax (one byte; a prefix in 64-bit code), int 0x80 to 64-bit code, iret.
  decoder.code(kUserCode, {0x40, 0x40, 0xcd, 0x80, 0x40}).code(kCode, {0x90, 0x48, 0xcf});
  enable(kBoth, kCode);
  plain({kCode});
  branch(Flow::kIret, kCode + 1, 2, user(kUserCode, Exec::k32));
  plain({kUserCode, kUserCode + 1});
  unit.interrupt({kUserCode + 2, {}, {}}, kernel(kCode), tsc);
  plain({kCode});
  branch(Flow::kIret, kCode + 1, 2, user(kUserCode + 4, Exec::k32));
  plain({kUserCode + 4});
  disable(kUserCode + 5);
  EXPECT_EQ(
      packets(),
      "psb cbr pip psbend mode:1 pge:0 mode:2 tip:1000 fup:1002 mode:1 tip:0 mode:2 tip:1004 fup:1005 pgd");
  expect_both();
}

// Cases 5a to 5f. In the trace alone a TIP.PGD without address could belong to the MOV CR3 of a PIP before it: hence
// the jump between the two.
TEST_F(PtUnit, Cr3Filter) {
  decoder.code(kCode, {0x0f, 0x22, 0xd8, 0x90, 0x0f, 0x22, 0xd8, 0xff, 0xe0, 0x0f, 0x22, 0xd8});
  unit.cr3_match = 0x5000;
  cr3 = 0x9000;
  enable(kBoth | kCr3Filter, kCode);
  plain({kCode});
  unit.mov_cr3(0x5000, kernel(kCode + 3), tsc);  // enters
  plain({kCode + 3, kCode + 4});
  unit.mov_cr3(0x5000 | uint64_t{1} << 63, kernel(kCode + 7), tsc);  // the same context
  branch(Flow::kJumpIndirect, kCode + 7, 2, kCode + 9);
  plain({kCode + 9});
  unit.mov_cr3(0x9000, kernel(kCode + 12), tsc);  // leaves
  EXPECT_EQ(packets(), "psb cbr psbend pip mode:1 pge:3 pip tip:9 pgd");
  EXPECT_EQ(unit.status() & (kContextEn | kFilterEn | kTriggerEn), kFilterEn | kTriggerEn);
  expect_both();
}

// User code of one process: the kernel's MOV CR3 is outside of the context whatever it loads, so it has no packets; what
// was loaded counts when the kernel returns.
TEST_F(PtUnit, Cr3FilterOfUserCode) {
  decoder.code(kUserCode, x86::test::Bytes(16, 0x90));
  const auto in_context = [&] { return (unit.status() & kContextEn) != 0; };
  unit.cr3_match = 0x5000;
  cr3 = 0x5000;
  enable(kUser | kBranchEn | kCr3Filter, kUserCode);
  plain({kUserCode, kUserCode + 1});
  unit.interrupt({kUserCode + 2, {}, {}}, kernel(kCode), tsc);
  EXPECT_FALSE(in_context());
  const uint64_t left = unit.written();
  unit.mov_cr3(0x9000, kernel(kCode + 3), tsc);
  branch(Flow::kIret, kCode + 3, 2, kUserCode + 8);  // another process at the same addresses
  EXPECT_FALSE(in_context());
  unit.interrupt({kUserCode + 9, {}, {}}, kernel(kCode), tsc);
  unit.mov_cr3(0x501f, kernel(kCode + 3), tsc);  // bits 0 to 4 are no address
  EXPECT_FALSE(in_context());
  EXPECT_EQ(unit.written(), left);
  branch(Flow::kIret, kCode + 3, 2, kUserCode + 2);
  EXPECT_TRUE(in_context());
  plain({kUserCode + 2});
  disable(kUserCode + 3);
  EXPECT_EQ(packets(), "psb cbr psbend mode:1 pge:1000 fup:1002 pgd pge:1002 fup:1003 pgd");
  expect_both();
}

// PIP needs ContextEn, not FilterEn; a context that is entered outside of the range is no reason to trace.
TEST_F(PtUnit, Cr3FilterOutsideOfTheRange) {
  unit.cr3_match = 0x5000;
  unit.ranges = {kCode + 0x10, kCode + 0x1f, 0, 0};
  cr3 = 0x9000;
  enable(kBoth | kCr3Filter | uint64_t{1} << 32, kCode);
  unit.mov_cr3(0x5000, kernel(kCode + 3), tsc);
  EXPECT_EQ(packets(), "psb cbr psbend pip");
  EXPECT_EQ(unit.status() & (kContextEn | kFilterEn), kContextEn);
  unit.mov_cr3(0x9000, kernel(kCode + 6), tsc);
  branch(Flow::kJump, kCode + 6, 5, kCode + 0x10);  // in the range, and out of the context
  EXPECT_EQ(packets(), "psb cbr psbend pip");
  EXPECT_EQ(unit.status() & (kContextEn | kFilterEn), kFilterEn);
}

// ADDRn_CFG 1: TIP.PGD has the target's address; sequential flow out of the range changes nothing.
TEST_F(PtUnit, FilterRange) {
  decoder.code(kCode, small_program());
  unit.ranges = {kCode + 0x10, kCode + 0x1f, 0, 0};
  enable(kBoth | uint64_t{1} << 32, kCode);
  EXPECT_EQ(packets(), "psb cbr pip psbend");
  const uint64_t start = unit.written();
  branch(Flow::kCond, kCode, 2, kCode + 4);
  branch(Flow::kCall, kCode + 4, 5, kCode + 0x10);
  branch(Flow::kRet, kCode + 0x10, 1, kCode + 9);
  branch(Flow::kJumpIndirect, kCode + 9, 2, kCode + 0x11);
  plain({kCode + 0x11});
  disable(kCode + 0x12);
  EXPECT_EQ(packets_after(start), "mode:1 pge:10 pgd:9 pge:11 fup:12 pgd");
  expect_both();
}

// Cases 7e and 7f: a conditional branch, or a compressed return, out of the range has no address and no outcome of its own.
TEST_F(PtUnit, ConditionalBranchOutOfTheFilterRange) {
  unit.ranges = {kCode, kCode + 0x1f, 0, 0};
  enable(kBoth | uint64_t{1} << 32, kCode);
  const uint64_t start = unit.written();
  branch(Flow::kCond, kCode, 2, kCode + 2);
  branch(Flow::kCond, kCode + 2, 2, kCode + 0x40);
  branch(Flow::kJump, kCode + 0x40, 5, kCode);
  branch(Flow::kCond, kCode, 2, kCode + 0x40);
  branch(Flow::kJump, kCode + 0x40, 5, kCode + 4);
  branch(Flow::kJump, kCode + 4, 5, kCode + 0x60);
  EXPECT_EQ(packets_after(start), "tnt:0 pgd pge:0 pgd pge:4 pgd:60");
}

TEST_F(PtUnit, CompressedReturnOutOfTheFilterRange) {
  unit.ranges = {kCode, kCode + 8, kCode + 0x20, kCode + 0x2f};
  enable(kBoth | uint64_t{1} << 32 | uint64_t{1} << 36, kCode);
  const uint64_t start = unit.written();
  branch(Flow::kCall, kCode + 4, 5, kCode + 0x20);
  branch(Flow::kRet, kCode + 0x20, 1, kCode + 9);  // to the call, which was the range's last instruction
  branch(Flow::kJump, kCode + 9, 5, kCode + 0x20);
  branch(Flow::kRet, kCode + 0x20, 1, kCode + 9);  // to a call from before
  EXPECT_EQ(packets_after(start), "pgd pge:20 pgd:9");
}

// What the trace has neither an outcome nor an address of is in the text. libipt, without errata, looks
// for a branch that cannot be compressed, and finds none.
TEST_F(PtUnit, DecodedConditionalBranchOutOfTheFilterRange) {
  // 0x10: nop; jne 15; 0x15: jne 26; 0x18: jmp rax; 0x26: nop; jmp rax
  x86::test::Bytes code(0x30, 0x90);
  code[0x11] = code[0x15] = 0x75;
  code[0x12] = 0x02, code[0x16] = 0x0f;
  code[0x18] = code[0x27] = 0xff;
  code[0x19] = code[0x28] = 0xe0;
  decoder.code(kCode, code);
  unit.ranges = {kCode + 0x10, kCode + 0x1f, 0, 0};
  enable(kBoth | uint64_t{1} << 32, kCode);
  const uint64_t start = unit.written();
  branch(Flow::kJump, kCode, 5, kCode + 0x10);
  plain({kCode + 0x10});
  branch(Flow::kCond, kCode + 0x11, 2, kCode + 0x15);
  branch(Flow::kCond, kCode + 0x15, 2, kCode + 0x26);  // 7f
  branch(Flow::kJumpIndirect, kCode + 0x27, 2, kCode + 0x18);
  branch(Flow::kJumpIndirect, kCode + 0x18, 2, kCode + 0x15);
  branch(Flow::kCond, kCode + 0x15, 2, kCode + 0x26);  // 7e
  branch(Flow::kJumpIndirect, kCode + 0x27, 2, kCode + 0x10);
  plain({kCode + 0x10});
  disable(kCode + 0x11);
  EXPECT_EQ(packets_after(start), "mode:1 pge:10 tnt:1 pgd pge:18 tip:15 pgd pge:10 fup:11 pgd");
  for (const AddrRange known : {AddrRange{}, AddrRange{kCode + 0x10, kCode + 0x20}}) {
    decoder.config.filter = {known};
    decoder.pt = {};
    const auto d = expect_asof();
    EXPECT_TRUE(d.gaps.empty());
    for (const auto& r : d.ran) EXPECT_EQ(r.confidence, Confidence::kCertain) << r.ip;
  }
}

TEST_F(PtUnit, DecodedCompressedReturnOutOfTheFilterRange) {
  // 0x10: jmp rax; 0x12: nop, ret; 0x1b: call 12, which ends the range; 0x21: jmp rax
  x86::test::Bytes code(0x30, 0x90);
  const auto set = [&](size_t at, std::initializer_list<uint8_t> bytes) {
    std::copy(bytes.begin(), bytes.end(), code.begin() + static_cast<std::ptrdiff_t>(at));
  };
  set(0x10, {0xff, 0xe0});
  set(0x13, {0xc3});
  set(0x1b, {0xe8, 0xf2, 0xff, 0xff, 0xff});
  set(0x21, {0xff, 0xe0});
  decoder.code(kCode, code);
  decoder.config.cpu = {true, 6, 0x8f, 8};  // without SKL014, by which the CALL would have no address either
  decoder.config.filter = {{}};
  unit.ranges = {kCode + 0x10, kCode + 0x1f, 0, 0};
  enable(kBoth | uint64_t{1} << 32, kCode);
  const uint64_t start = unit.written();
  branch(Flow::kJump, kCode, 5, kCode + 0x10);
  branch(Flow::kJumpIndirect, kCode + 0x10, 2, kCode + 0x1b);
  branch(Flow::kCall, kCode + 0x1b, 5, kCode + 0x12);
  plain({kCode + 0x12});
  branch(Flow::kRet, kCode + 0x13, 1, kCode + 0x20);
  branch(Flow::kJumpIndirect, kCode + 0x21, 2, kCode + 0x10);
  disable(kCode + 0x10);
  EXPECT_EQ(packets_after(start), "mode:1 pge:10 tip:1b pgd pge:10 fup:10 pgd");
  const auto d = expect_asof();
  EXPECT_TRUE(d.gaps.empty());
  for (const auto& r : d.ran) EXPECT_EQ(r.confidence, Confidence::kCertain) << r.ip;
}

// ADDRn_CFG 2: a taken branch into the range stops the trace until software clears Stopped.
TEST_F(PtUnit, TraceStopRange) {
  decoder.code(kCode, small_program());
  unit.ranges = {0, 0, kCode + 0x10, kCode + 0x1f};
  const uint64_t ctl = kBoth | uint64_t{2} << 36;
  enable(ctl, kCode);
  const uint64_t start = unit.written();
  branch(Flow::kCond, kCode, 2, kCode + 4);
  branch(Flow::kCall, kCode + 4, 5, kCode + 0x10);
  EXPECT_EQ(packets_after(start), "tnt:1 pgd:10 stop");
  EXPECT_EQ(unit.status() & (kStopped | kTriggerEn | kFilterEn), kStopped);
  branch(Flow::kRet, kCode + 0x10, 1, kCode + 9);
  disable(kCode + 9);
  EXPECT_EQ(packets_after(start), "tnt:1 pgd:10 stop");
  unit.write_status(unit.status() & ~kStopped);
  enable(ctl, kCode + 0x10);  // case "WRMSR that sets TraceEn in a TraceStop region"
  EXPECT_EQ(packets_after(start), "tnt:1 pgd:10 stop cbr stop");
  const auto d = expect_both();
  EXPECT_EQ(d.of(EventKind::kTraceStopPacket).size(), 2U);
}

TEST_F(PtUnit, PsbByVolume) {
  decoder.code(kCode, {0xff, 0xe0});         // jmp rax
  enable(kBoth | uint64_t{1} << 24, kCode);  // every 4 KiB
  const uint64_t first = unit.sync_at();
  for (int i = 0; i < 3000; ++i) branch(Flow::kJumpIndirect, kCode, 2, kCode);  // 3 bytes each
  EXPECT_EQ(unit.syncs(), 3U);
  EXPECT_EQ(first, 0U);
  EXPECT_NEAR(static_cast<double>(unit.sync_at()), 2 * 4096.0, 100);
  EXPECT_EQ(packets_after(unit.sync_at()).substr(0, 39), "psb cbr pip mode:1 fup:0 psbend tip:0 t");
  disable(kCode);
  expect_both();
}

TEST_F(PtUnit, Ptwrite) {
  decoder.code(kCode, {0xf3, 0x48, 0x0f, 0xae, 0xe0, 0xf3, 0x0f, 0xae, 0x27, 0x90});
  enable(kBoth | kPtwEn | kFupOnPtw, kCode);
  const uint64_t start = unit.written();
  unit.ptwrite(kCode, 0x1122334455667788, true, tsc);
  plain({kCode});
  unit.ptwrite(kCode + 5, 0xaabbccdd, false, tsc);
  plain({kCode + 5, kCode + 9});
  disable(kCode + 10);
  EXPECT_EQ(packets_after(start), "ptw fup:0 ptw fup:5 fup:a pgd");
  const auto d = expect_both();
  const auto events = d.of(EventKind::kPtwrite);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].ip, kCode);
  EXPECT_EQ(events[0].a, 0x1122334455667788U);
  EXPECT_EQ(events[1].a, 0xaabbccddU);
}

// Without PTWEn or outside of the context nothing is written; without FUPonPTW no address.
TEST_F(PtUnit, PtwriteConditions) {
  enable(kBoth, kCode);
  unit.ptwrite(kCode, 1, true, tsc);
  disable(kCode);
  enable(kUser | kPtwEn | kBranchEn, kCode);
  unit.ptwrite(kCode, 1, true, tsc);
  disable(kCode);
  EXPECT_EQ(packets().find("ptw"), std::string::npos);
  enable(kBoth | kPtwEn, kCode);
  const uint64_t start = unit.written();
  unit.ptwrite(kCode, 1, true, tsc);
  EXPECT_EQ(packets_after(start), "ptw");
}

// "TNT Disable": neither outcomes nor compressed returns.
TEST_F(PtUnit, TntDisable) {
  enable(kBoth | kDisTnt, kCode);
  const uint64_t start = unit.written();
  branch(Flow::kCond, kCode, 2, kCode + 4);
  branch(Flow::kCall, kCode + 4, 5, kCode + 0x10);
  branch(Flow::kRet, kCode + 0x10, 1, kCode + 9);
  branch(Flow::kJumpIndirect, kCode + 9, 2, kCode);
  EXPECT_EQ(packets_after(start), "tip:0");
}

}  // namespace
}  // namespace asof::pt::test
