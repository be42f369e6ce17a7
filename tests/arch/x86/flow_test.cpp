// The flow, one scenario at a time: a few bytes of code, a few packets, the instructions that ran. Branches,
// asynchronous events, tracing off and on.
#include <algorithm>

#include "tests/arch/x86/flow_fixture.h"

namespace asof::x86::test {
namespace {

// ---- branches ----

TEST(Flow, ConditionalLoop) {
  FlowFixture s;
  s.code(A, {0x90, 0x75, 0xfd, 0x90, 0x90}).start(A);
  bits(s, {1, 1, 0});
  stop_at(s, A + 4);
  const Decoded d = s.expect(at({0, 1, 0, 1, 0, 1, 3}));
  EXPECT_TRUE(d.gaps.empty());
  EXPECT_NE(d.ran[1].flags & Step::kTaken, 0);
  EXPECT_EQ(d.ran[5].flags & Step::kTaken, 0);
  ASSERT_EQ(d.of(EventKind::kAsync).size(), 1U);
  EXPECT_EQ(d.of(EventKind::kAsync)[0].ip, A + 4);
  EXPECT_EQ(d.of(EventKind::kAsync)[0].at, 7U);
  EXPECT_EQ(d.of(EventKind::kTraceStop).size(), 1U);
}

TEST(Flow, IndirectCallAndUncompressedReturn) {
  FlowFixture s;
  s.code(A, {0xff, 0xd0, 0x90, 0x90}).code(A + 0x10, {0x90, 0xc3}).start(A);
  s.pt.tip(A + 0x10);
  s.pt.tip(A + 2);
  stop_at(s, A + 3);
  s.expect(at({0, 0x10, 0x11, 2}));
}

TEST(Flow, CompressedReturnOfDirectAndIndirectCalls) {
  FlowFixture s;
  // 0: CALL RAX; 2: CALL 10; 7: NOP
  s.code(A, {0xff, 0xd0, 0xe8, 0x09, 0, 0, 0, 0x90, 0x90}).code(A + 0x10, {0xc3}).start(A);
  s.pt.tip(A + 0x10);
  bits(s, {1, 1});
  stop_at(s, A + 8);
  s.expect(at({0, 0x10, 2, 0x10, 7}));
}

// After a return that went elsewhere two stacks are kept (state.h): calls made from there on return as usual,
// and the return that reaches the entries below decides between the stacks.
TEST(Flow, CallsAboveAReturnThatWentElsewhere) {
  FlowFixture s;
  s.code(A, {0xe8, 0x1b, 0, 0, 0, 0x90, 0x90}).code(A + 0x20, {0xc3});
  s.code(A + 0x40, {0xe8, 0x1b, 0, 0, 0, 0x74, 0xf9, 0xc3});  // CALL 60; JE 40; RET
  s.code(A + 0x60, {0x74, 0x01, 0x90, 0xc3}).start(A);        // JE 63; NOP; RET
  s.pt.tip(A + 0x40);
  std::vector<Addr> ran = at({0, 0x20});
  for (unsigned i = 0; i < 200; ++i) {
    const bool taken = i % 3 == 1;
    bits(s, {taken ? 1 : 0, 1, i < 199 ? 1 : 0});
    std::ranges::copy(taken ? at({0x40, 0x60, 0x63, 0x45}) : at({0x40, 0x60, 0x62, 0x63, 0x45}),
                      std::back_inserter(ran));
  }
  bits(s, {1});
  stop_at(s, A + 6);
  std::ranges::copy(at({0x47, 5}), std::back_inserter(ran));
  s.expect(ran);
}

TEST(Flow, CallOfNextInstructionIsNoCall) {
  FlowFixture s;
  // 0: CALL 20; 5: NOP; 20: CALL 25; 25: POP RAX; 26: RET
  s.code(A, {0xe8, 0x1b, 0, 0, 0, 0x90, 0x90});
  s.code(A + 0x20, {0xe8, 0, 0, 0, 0, 0x58, 0xc3}).start(A);
  bits(s, {1});
  stop_at(s, A + 6);
  s.expect(at({0, 0x20, 0x25, 0x26, 5}));
}

TEST(Flow, OldestOf64ReturnAddressesFallsOut) {
  FlowFixture s;
  // 0: JNE 8; 2: CALL 0; 7: NOP; 8: RET
  s.code(A, {0x75, 0x06, 0xe8, 0xf9, 0xff, 0xff, 0xff, 0x90, 0xc3, 0x90, 0x90}).start(A);
  constexpr int kDepth = 70;
  std::vector<Addr> want;
  for (int i = 0; i < kDepth; ++i) {
    s.pt.tnt(false);
    want.insert(want.end(), {A, A + 2});
  }
  s.pt.tnt(true);
  want.insert(want.end(), {A, A + 8});
  for (int i = 0; i < kDepth; ++i) {
    if (i < 64)
      s.pt.tnt(true);
    else
      s.pt.tip(A + 7);
    want.insert(want.end(), {A + 7, A + 8});
  }
  s.pt.tip(A + 9);
  want.push_back(A + 9);
  stop_at(s, A + 10);
  s.expect(want);
}

// Hardware does not compress it; a trace that does is wrong from there on, however well the code is known.
TEST(Flow, CompressedReturnBeyondTheOldestIsAContradiction) {
  FlowFixture s;
  // 0: JNE 8; 2: CALL 0; 7: NOP; 8: RET; 9: JMP 0
  s.code(A, {0x75, 0x06, 0xe8, 0xf9, 0xff, 0xff, 0xff, 0x90, 0xc3, 0xeb, 0xf5}).start(A);
  constexpr int kDepth = 70;
  const auto down_and_up = [&](int compressed) {
    for (int i = 0; i < kDepth; ++i) s.pt.tnt(false);
    s.pt.tnt(true);
    for (int i = 0; i < compressed; ++i) s.pt.tnt(true);
  };
  for (int turn = 0; turn < 3; ++turn) {
    down_and_up(64);
    for (int i = 64; i < kDepth; ++i) s.pt.tip(A + 7);
    s.pt.tip(A + 9);
  }
  down_and_up(65);
  stop_at(s, A + 8);
  const Decoded d = s.decode_all_ways();
  EXPECT_EQ(d.gap_codes(), std::vector<Code>{Code::kReturnWithoutItsCall});
}

TEST(Flow, CompressedReturnWithoutCallIsAContradiction) {
  FlowFixture s;
  s.code(A, {0x90, 0xc3, 0x90, 0x90}).start(A);
  bits(s, {1});
  s.pt.tip(A + 2);
  stop_at(s, A + 3);
  // Nothing confirms what ran up to the RET, so it is taken back. libipt keeps the NOP, stops, and never
  // resumes.
  const Decoded d = s.expect_flow(at({2}));
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_EQ(d.gaps[0].code, Code::kReturnWithoutItsCall);
  EXPECT_EQ(d.gaps[0].resume_ip, A + 2);
  EXPECT_EQ(d.gaps[0].at, 0U);
  EXPECT_NE(d.ran[0].flags & Step::kAfterGap, 0);
}

TEST(Flow, TipsAreNotDeferred) {
  FlowFixture s;
  // 0: JMP RAX; a bit before its TIP belongs to no branch that ran: the text is wrong.
  s.code(A, {0xff, 0xe0}).code(A + 0x10, {0x74, 0x02, 0x90, 0x90, 0x90, 0x90}).start(A);
  bits(s, {1});
  s.pt.tip(A + 0x10);
  bits(s, {1});
  stop_at(s, A + 0x15);
  const Decoded d = s.expect_flow(at({0x10, 0x14}));
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_EQ(d.gaps[0].code, Code::kTraceContradictsText);
}

TEST(Flow, RepeatedStringInstructionIsOne) {
  FlowFixture s;
  s.code(A, {0xf3, 0xa4, 0x75, 0xfc, 0x90, 0x90}).start(A);
  bits(s, {1, 0});
  stop_at(s, A + 5);
  s.expect(at({0, 2, 0, 2, 4}));
}

TEST(Flow, StraightRunsLongerThanABlock) {
  FlowFixture s;
  Bytes nops(2000, 0x90);
  s.code(A, nops).start(A);
  stop_at(s, A + 1999);
  std::vector<Addr> want;
  for (Addr i = 0; i < 1999; ++i) want.push_back(A + i);
  s.expect(want);
}

// ---- asynchronous events ----

// WARN(): #UD at UD2, whose handler returns behind it.
TEST(Flow, UndefinedInstructionFaults) {
  FlowFixture s;
  s.code(A, {0x90, 0x0f, 0x0b, 0x90, 0x90}).code(A + 0x100, {0x90, 0x48, 0xcf}).start(A);
  s.pt.fup(A + 1);
  s.pt.tip(A + 0x100);
  s.pt.tip(A + 3);
  stop_at(s, A + 4);
  const Decoded d = s.expect(at({0, 0x100, 0x101, 3}));
  EXPECT_TRUE(d.gaps.empty());
}

TEST(Flow, InterruptInsideABlock) {
  FlowFixture s;
  s.code(A, {0x90, 0x90, 0x90, 0x90, 0x90, 0x90}).code(A + 0x100, {0x90, 0x48, 0xcf}).start(A);
  s.pt.fup(A + 2);
  s.pt.tip(A + 0x100);
  s.pt.tip(A + 2);
  stop_at(s, A + 5);
  const Decoded d = s.expect(at({0, 1, 0x100, 0x101, 2, 3, 4}));
  EXPECT_NE(d.ran[2].flags & Step::kAsyncEntry, 0);
  EXPECT_EQ(d.ran[4].flags & Step::kAsyncEntry, 0);
  const auto events = d.of(EventKind::kAsync);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].ip, A + 2);
  EXPECT_EQ(events[0].a, A + 0x100);
  EXPECT_EQ(events[0].at, 2U);
}

TEST(Flow, InterruptAtTheFirstInstructionAndAgain) {
  FlowFixture s;
  s.code(A, {0x74, 0x02, 0x90, 0x90, 0x90, 0x90}).code(A + 0x100, {0x48, 0xcf}).start(A);
  s.pt.fup(A);
  s.pt.tip(A + 0x100);
  s.pt.tip(A);
  bits(s, {1});
  s.pt.fup(A + 4);
  s.pt.tip(A + 0x100);
  s.pt.tip(A + 4);
  stop_at(s, A + 5);
  s.expect(at({0x100, 0, 0x100, 4}));
}

TEST(Flow, InterruptInTheMiddleOfALoopWithoutTrace) {
  FlowFixture s;
  // 0: NOP; 1: JMP 0. The FUP shows when to leave.
  s.code(A, {0x90, 0xeb, 0xfd}).code(A + 0x100, {0x90, 0x90}).start(A);
  s.pt.fup(A + 1);
  s.pt.tip(A + 0x100);
  stop_at(s, A + 0x101);
  s.expect(at({0, 0x100}));
}

TEST(Flow, FupAtNoInstructionBoundary) {
  FlowFixture s;
  s.code(A, {0x48, 0x89, 0xc8, 0x90, 0xff, 0xe0}).code(A + 0x100, {0x90, 0x90}).start(A);
  s.pt.fup(A + 1);
  s.pt.tip(A + 0x100);
  stop_at(s, A + 0x101);
  // libipt walks up to the JMP and gives up.
  const Decoded d = s.expect_flow(at({0x100}));
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_EQ(family_of(d.gaps[0].code), CodeFamily::kFlow);
}

// ---- tracing off and on ----

TEST(Flow, OffByInterruptOnElsewhere) {
  FlowFixture s;
  s.code(A, {0x90, 0x90, 0x90}).code(A + 0x100, {0x90, 0x90}).start(A);
  s.pt.fup(A + 1);
  s.pt.tip_pgd();
  s.pt.mode_exec(ExecMode::k64);
  s.pt.tip_pge(A + 0x100);
  stop_at(s, A + 0x101);
  const Decoded d = s.expect(at({0, 0x100}));
  ASSERT_EQ(d.of(EventKind::kTraceStart).size(), 1U);
  EXPECT_EQ(d.of(EventKind::kTraceStart)[0].ip, A + 0x100);
  EXPECT_EQ(d.of(EventKind::kTraceStart)[0].at, 1U);
  EXPECT_TRUE(d.gaps.empty());
}

TEST(Flow, AddressFilterLeftByADirectJump) {
  FlowFixture s;
  // 0: JMP 5; 5: JMP 100
  s.code(A, {0xeb, 0x03, 0xcc, 0xcc, 0xcc, 0xe9, 0xf6, 0, 0, 0}).start(A);
  s.pt.tip_pgd(A + 0x100);
  s.pt.tip_pge(A);
  s.pt.tip_pgd(A + 0x100);
  const Decoded d = s.expect(at({0, 5, 0, 5}));
  EXPECT_EQ(d.of(EventKind::kTraceStop).size(), 2U);
  EXPECT_EQ(d.of(EventKind::kTraceStop)[0].ip, A + 0x100);
}

TEST(Flow, AddressFilterLeftByAConditionalBranch) {
  FlowFixture s;
  s.code(A, {0x74, 0x7e, 0x90, 0x74, 0x7e}).start(A);
  bits(s, {0});
  s.pt.tip_pgd(A + 0x83);
  const Decoded d = s.expect(at({0, 2, 3}));
  EXPECT_TRUE(d.gaps.empty());
}

TEST(Flow, AddressFilterLeftByIndirectBranchAndReturn) {
  FlowFixture s;
  s.code(A, {0x90, 0xff, 0xe0}).code(A + 0x10, {0x90, 0xc3}).start(A);
  s.pt.tip_pgd(A + 0x200);
  s.pt.tip_pge(A + 0x10);
  s.pt.tip_pgd(A + 0x300);
  s.expect(at({0, 1, 0x10, 0x11}));
}

TEST(Flow, PrivilegeFilterAtSyscallAndSysret) {
  FlowFixture user;
  constexpr Addr U = FlowFixture::kUserCode;
  user.code(U, {0x90, 0x0f, 0x05, 0x90, 0x0f, 0x05}).start(U);
  user.pt.tip_pgd();
  user.pt.tip_pge(U + 3);
  user.pt.tip_pgd();
  user.expect({U, U + 1, U + 3, U + 4});

  FlowFixture kernel;
  kernel.code(A, {0x90, 0x48, 0x0f, 0x07}).start(A);
  kernel.pt.tip_pgd();
  kernel.pt.tip_pge(A);
  kernel.pt.tip_pgd();
  kernel.expect(at({0, 1, 0, 1}));
}

TEST(Flow, MovCr3LeavesTheTraceOnlyUnderACr3Filter) {
  const Bytes code = {0x90, 0x0f, 0x22, 0xd8, 0x90, 0x48, 0x0f, 0x07};
  FlowFixture s;
  s.code(A, code).start(A);
  s.pt.tip_pgd();
  // libipt 2.0.5 stops at MOV CR3 whatever the filter; the reference continues straight after it.
  s.expect(at({0, 1, 4, 5}));

  FlowFixture filtered;
  filtered.config.cr3_filter = true;
  filtered.code(A, code).start(A);
  filtered.pt.tip_pgd();
  filtered.expect(at({0, 1}));

  // With a branch that would have a packet after the MOV CR3, libipt's stop remains.
  FlowFixture branch;
  branch.code(A, {0x90, 0x0f, 0x22, 0xd8, 0x90, 0x74, 0x00, 0x48, 0x0f, 0x07}).start(A);
  branch.pt.tip_pgd();
  EXPECT_EQ(hex(branch.decode_by_reference().ips()), hex(at({0, 1})));
}

// A full buffer ends the trace, and the interrupt that it causes has no packets: it may have come anywhere before the
// next branch.
TEST(Flow, WhatFollowsTheLastPacketIsNotCertain) {
  for (const Bytes& branch : {Bytes{0x74, 0x02}, Bytes{0xff, 0xe0}}) {
    FlowFixture s;
    Bytes code{0x90, 0x74, 0x02, 0x90, 0xeb, 0x00, 0x90};
    code.insert(code.end(), branch.begin(), branch.end());
    s.code(A, code).start(A);
    bits(s, {0});
    const Decoded d = s.expect_flow(at({0, 1, 3, 4, 6, 7}));
    ASSERT_EQ(d.ran.size(), 6U);
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(d.ran[i].confidence, Confidence::kCertain) << i;
    for (size_t i = 2; i < 6; ++i) EXPECT_EQ(d.ran[i].confidence, Confidence::kAmbiguous) << i;
  }
}

TEST(Flow, StopAtANearBranchIsMarked) {
  FlowFixture s;
  s.code(A, {0x90, 0x74, 0x02, 0x90, 0xff, 0xe0}).code(A + 0x100, {0x90, 0x90}).start(A);
  bits(s, {0});
  s.pt.tip_pgd();
  s.pt.tip_pge(A + 0x100);
  stop_at(s, A + 0x101);
  // libipt does not accept it.
  const Decoded d = s.expect_flow(at({0, 1, 3, 4, 0x100}));
  EXPECT_EQ(d.ran[1].confidence, Confidence::kCertain);
  EXPECT_EQ(d.ran[2].confidence, Confidence::kAmbiguous);
  EXPECT_EQ(d.ran[3].confidence, Confidence::kAmbiguous);
  EXPECT_EQ(d.ran[4].confidence, Confidence::kCertain);
}

// A fault on the first instruction after TIP.PGE: PGD without FUP, and PGE at the same address afterwards.
TEST(Flow, StopWithoutAddressIsCutWhereTracingStartsAgain) {
  FlowFixture s;
  s.code(A, {0x90, 0x90, 0x90, 0xff, 0xe0}).code(A + 0x100, {0x90, 0x90}).start(A);
  s.pt.tip_pgd();
  s.pt.tip_pge(A + 2);
  s.pt.tip(A + 0x100);
  stop_at(s, A + 0x101);
  const Decoded d = s.expect_flow(at({0, 1, 2, 3, 0x100}));
  EXPECT_TRUE(d.gaps.empty());
  for (const Ran& r : d.ran) EXPECT_EQ(r.confidence, Confidence::kCertain);

  FlowFixture first;
  first.code(A, {0x90, 0xff, 0xe0}).code(A + 0x100, {0x90, 0x90}).start(A);
  first.pt.tip_pgd();
  first.pt.tip_pge(A);
  first.pt.tip(A + 0x100);
  stop_at(first, A + 0x101);
  first.expect_flow(at({0, 1, 0x100}));
}

TEST(Flow, SwitchedOffByWrmsr) {
  FlowFixture s;
  s.code(A, {0x90, 0x0f, 0x30, 0x90, 0x90, 0xc3}).start(A);
  s.pt.tip_pgd();
  // libipt does not know that WRMSR can switch tracing off, and looks for a far branch.
  const Decoded d = s.expect_flow(at({0, 1}));
  EXPECT_TRUE(d.gaps.empty());
}

TEST(Flow, TracingStartsWhereTheFlowStands) {
  FlowFixture s;
  s.code(A, {0x90, 0x90, 0x90}).start(A);
  s.pt.tip_pge(A, IpForm::kSext48);  // BDM70 on a processor whose model is not known
  stop_at(s, A + 2);
  s.expect_flow(at({0, 1}));

  FlowFixture known = FlowFixture();
  known.config.cpu = {true, 6, 0x4e, 3};
  known.code(A, {0x90, 0x90, 0x90}).start(A);
  known.pt.tip_pge(A, IpForm::kSext48);  // the FUP is not the last IP
  stop_at(known, A + 2);
  known.expect(at({0, 1}));
}

TEST(Flow, TracingStartsAlthoughItIsOn) {
  FlowFixture s;
  s.code(A, {0x90, 0xff, 0xe0}).code(A + 0x100, {0x90, 0x90}).start(A);
  s.pt.tip_pge(A + 0x100);
  stop_at(s, A + 0x101);
  const Decoded d = s.expect_flow(at({0x100}));  // libipt stops
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_EQ(d.gaps[0].code, Code::kPacketOutOfPlace);
  EXPECT_EQ(d.gaps[0].resume_ip, A + 0x100);
}

TEST(Flow, PacketsOfRunningTraceWhileItIsOff) {
  FlowFixture s;
  s.code(A, {0x90, 0x90, 0x74, 0x02, 0x90, 0x90, 0x90, 0x90});
  s.pt.psb_plus({});
  bits(s, {1, 0, 1});
  s.pt.tip(A);
  bits(s, {1});
  stop_at(s, A + 7);
  const Decoded d = s.expect_flow(at({0, 1, 2, 6}));  // libipt stops at the TNT
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_EQ(d.gaps[0].code, Code::kPacketOutOfPlace);
  EXPECT_EQ(d.gaps[0].resume_ip, A);
}

TEST(Flow, TraceStopRegion) {
  FlowFixture s;
  s.code(A, {0x90, 0xeb, 0x0e}).start(A);
  s.pt.tip_pgd(A + 0x11);
  s.pt.stop();
  const Decoded d = s.expect(at({0, 1}));
  EXPECT_EQ(d.of(EventKind::kTraceStopPacket).size(), 1U);
}

}  // namespace
}  // namespace asof::x86::test
