// The flow, one scenario at a time: a few bytes of code, a few packets, the instructions that ran.
#include <algorithm>

#include "tests/arch/x86/scene.h"

namespace asof::x86::test {
namespace {

constexpr Addr A = Scene::kCode;
using IpList = std::vector<Addr>;

// Addresses A + each.
IpList at(std::initializer_list<Addr> offsets) {
  IpList out;
  for (const Addr o : offsets) out.push_back(A + o);
  return out;
}

// Tracing is switched off by an asynchronous event at `ip`, which does not run: the end of a scenario that
// leaves nothing open.
void stop_at(Scene& s, Addr ip) {
  s.pt.fup(ip);
  s.pt.tip_pgd();
}

void bits(Scene& s, std::initializer_list<int> b) {
  for (const int i : b) s.pt.tnt(i != 0);
}

// ---- branches ----

TEST(Flow, ConditionalLoop) {
  Scene s;
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
  Scene s;
  s.code(A, {0xff, 0xd0, 0x90, 0x90}).code(A + 0x10, {0x90, 0xc3}).start(A);
  s.pt.tip(A + 0x10);
  s.pt.tip(A + 2);
  stop_at(s, A + 3);
  s.expect(at({0, 0x10, 0x11, 2}));
}

TEST(Flow, CompressedReturnOfDirectAndIndirectCalls) {
  Scene s;
  // 0: CALL RAX; 2: CALL 10; 7: NOP
  s.code(A, {0xff, 0xd0, 0xe8, 0x09, 0, 0, 0, 0x90, 0x90}).code(A + 0x10, {0xc3}).start(A);
  s.pt.tip(A + 0x10);
  bits(s, {1, 1});
  stop_at(s, A + 8);
  s.expect(at({0, 0x10, 2, 0x10, 7}));
}

TEST(Flow, CallOfNextInstructionIsNoCall) {
  Scene s;
  // 0: CALL 20; 5: NOP; 20: CALL 25; 25: POP RAX; 26: RET
  s.code(A, {0xe8, 0x1b, 0, 0, 0, 0x90, 0x90});
  s.code(A + 0x20, {0xe8, 0, 0, 0, 0, 0x58, 0xc3}).start(A);
  bits(s, {1});
  stop_at(s, A + 6);
  s.expect(at({0, 0x20, 0x25, 0x26, 5}));
}

TEST(Flow, OldestOf64ReturnAddressesFallsOut) {
  Scene s;
  // 0: JNE 8; 2: CALL 0; 7: NOP; 8: RET
  s.code(A, {0x75, 0x06, 0xe8, 0xf9, 0xff, 0xff, 0xff, 0x90, 0xc3, 0x90, 0x90}).start(A);
  constexpr int kDepth = 70;
  IpList want;
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

TEST(Flow, CompressedReturnWithoutCallIsAContradiction) {
  Scene s;
  s.code(A, {0x90, 0xc3, 0x90, 0x90}).start(A);
  bits(s, {1});
  s.pt.tip(A + 2);
  stop_at(s, A + 3);
  // What ran up to the RET rests on nothing, so it is taken back. libipt leaves the NOP, stops, and never
  // resumes.
  const Decoded d = s.expect_flow(at({2}));
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_STREQ(d.gaps[0].code, "E-FLOW-002");
  EXPECT_EQ(d.gaps[0].resume_ip, A + 2);
  EXPECT_EQ(d.gaps[0].at, 0U);
  EXPECT_NE(d.ran[0].flags & Step::kAfterGap, 0);
}

TEST(Flow, DeferredTip) {
  Scene s;
  // 0: JMP RAX, whose TIP stands behind the bit of 10: JE 14
  s.code(A, {0xff, 0xe0}).code(A + 0x10, {0x74, 0x02, 0x90, 0x90, 0x90, 0x90}).start(A);
  bits(s, {1});
  s.pt.tip(A + 0x10);
  stop_at(s, A + 0x15);
  // libipt does not defer.
  s.expect_flow(at({0, 0x10, 0x14}));
}

TEST(Flow, RepeatedStringInstructionIsOne) {
  Scene s;
  s.code(A, {0xf3, 0xa4, 0x75, 0xfc, 0x90, 0x90}).start(A);
  bits(s, {1, 0});
  stop_at(s, A + 5);
  s.expect(at({0, 2, 0, 2, 4}));
}

TEST(Flow, StraightRunsLongerThanABlock) {
  Scene s;
  Bytes nops(2000, 0x90);
  s.code(A, nops).start(A);
  stop_at(s, A + 1999);
  IpList want;
  for (Addr i = 0; i < 1999; ++i) want.push_back(A + i);
  s.expect(want);
}

// ---- asynchronous events ----

TEST(Flow, InterruptInsideABlock) {
  Scene s;
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
  Scene s;
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
  Scene s;
  // 0: NOP; 1: JMP 0. The FUP says when to leave.
  s.code(A, {0x90, 0xeb, 0xfd}).code(A + 0x100, {0x90, 0x90}).start(A);
  s.pt.fup(A + 1);
  s.pt.tip(A + 0x100);
  stop_at(s, A + 0x101);
  s.expect(at({0, 0x100}));
}

TEST(Flow, FupAtNoInstructionBoundary) {
  Scene s;
  s.code(A, {0x48, 0x89, 0xc8, 0x90, 0xff, 0xe0}).code(A + 0x100, {0x90, 0x90}).start(A);
  s.pt.fup(A + 1);
  s.pt.tip(A + 0x100);
  stop_at(s, A + 0x101);
  // libipt walks up to the JMP, and gives up.
  const Decoded d = s.expect_flow(at({0x100}));
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_EQ(std::string_view(d.gaps[0].code).substr(0, 6), "E-FLOW");
}

// ---- tracing off and on ----

TEST(Flow, OffByInterruptOnElsewhere) {
  Scene s;
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
  Scene s;
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
  Scene s;
  s.code(A, {0x74, 0x7e, 0x90, 0x74, 0x7e}).start(A);
  bits(s, {0});
  s.pt.tip_pgd(A + 0x83);
  const Decoded d = s.expect(at({0, 2, 3}));
  EXPECT_TRUE(d.gaps.empty());
}

TEST(Flow, AddressFilterLeftByIndirectBranchAndReturn) {
  Scene s;
  s.code(A, {0x90, 0xff, 0xe0}).code(A + 0x10, {0x90, 0xc3}).start(A);
  s.pt.tip_pgd(A + 0x200);
  s.pt.tip_pge(A + 0x10);
  s.pt.tip_pgd(A + 0x300);
  s.expect(at({0, 1, 0x10, 0x11}));
}

TEST(Flow, PrivilegeFilterAtSyscallAndSysret) {
  Scene user;
  constexpr Addr U = Scene::kUserCode;
  user.code(U, {0x90, 0x0f, 0x05, 0x90, 0x0f, 0x05}).start(U);
  user.pt.tip_pgd();
  user.pt.tip_pge(U + 3);
  user.pt.tip_pgd();
  user.expect({U, U + 1, U + 3, U + 4});

  Scene kernel;
  kernel.code(A, {0x90, 0x48, 0x0f, 0x07}).start(A);
  kernel.pt.tip_pgd();
  kernel.pt.tip_pge(A);
  kernel.pt.tip_pgd();
  kernel.expect(at({0, 1, 0, 1}));
}

TEST(Flow, MovCr3LeavesTheTraceOnlyUnderACr3Filter) {
  const Bytes code = {0x90, 0x0f, 0x22, 0xd8, 0x90, 0x48, 0x0f, 0x07};
  Scene s;
  s.code(A, code).start(A);
  s.pt.tip_pgd();
  // libipt 2.0.5 takes the stop at MOV CR3 whatever the filter, and loses the rest.
  s.expect_flow(at({0, 1, 4, 5}));
  EXPECT_EQ(hex(s.decode_by_reference().ips()), hex(at({0, 1})));

  Scene filtered;
  filtered.config.cr3_filter = true;
  filtered.code(A, code).start(A);
  filtered.pt.tip_pgd();
  filtered.expect(at({0, 1}));
}

TEST(Flow, StopAtANearBranchIsMarked) {
  Scene s;
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

// A fault on the first instruction after TIP.PGE: PGD without FUP, and PGE at the same place afterwards.
TEST(Flow, StopOnTheWayIsCutWhereTracingStartsAgain) {
  Scene s;
  s.code(A, {0x90, 0x90, 0x90, 0xff, 0xe0}).code(A + 0x100, {0x90, 0x90}).start(A);
  s.pt.tip_pgd();
  s.pt.tip_pge(A + 2);
  s.pt.tip(A + 0x100);
  stop_at(s, A + 0x101);
  const Decoded d = s.expect_flow(at({0, 1, 2, 3, 0x100}));
  EXPECT_TRUE(d.gaps.empty());
  for (const Ran& r : d.ran) EXPECT_EQ(r.confidence, Confidence::kCertain);

  Scene first;
  first.code(A, {0x90, 0xff, 0xe0}).code(A + 0x100, {0x90, 0x90}).start(A);
  first.pt.tip_pgd();
  first.pt.tip_pge(A);
  first.pt.tip(A + 0x100);
  stop_at(first, A + 0x101);
  first.expect_flow(at({0, 1, 0x100}));
}

TEST(Flow, SwitchedOffByWrmsr) {
  Scene s;
  s.code(A, {0x90, 0x0f, 0x30, 0x90, 0x90, 0xc3}).start(A);
  s.pt.tip_pgd();
  // libipt does not know that WRMSR can switch tracing off, and looks for a far branch.
  const Decoded d = s.expect_flow(at({0, 1}));
  EXPECT_TRUE(d.gaps.empty());
}

TEST(Flow, TracingStartsWhereTheFlowStands) {
  Scene s;
  s.code(A, {0x90, 0x90, 0x90}).start(A);
  s.pt.tip_pge(A, IpForm::kSext48);  // BDM70 on a processor whose model is not known
  stop_at(s, A + 2);
  s.expect_flow(at({0, 1}));

  Scene known = Scene();
  known.config.cpu = {true, 6, 0x4e, 3};
  known.code(A, {0x90, 0x90, 0x90}).start(A);
  known.pt.tip_pge(A, IpForm::kSext48);  // the FUP is not what the last IP is
  stop_at(known, A + 2);
  known.expect(at({0, 1}));
}

TEST(Flow, TracingStartsAlthoughItIsOn) {
  Scene s;
  s.code(A, {0x90, 0xff, 0xe0}).code(A + 0x100, {0x90, 0x90}).start(A);
  s.pt.tip_pge(A + 0x100);
  stop_at(s, A + 0x101);
  const Decoded d = s.expect_flow(at({0x100}));  // libipt stops
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_STREQ(d.gaps[0].code, "E-DATA-003");
  EXPECT_EQ(d.gaps[0].resume_ip, A + 0x100);
}

TEST(Flow, PacketsOfRunningTraceWhileItIsOff) {
  Scene s;
  s.code(A, {0x90, 0x90, 0x74, 0x02, 0x90, 0x90, 0x90, 0x90});
  s.pt.psb_plus({});
  bits(s, {1, 0, 1});
  s.pt.tip(A);
  bits(s, {1});
  stop_at(s, A + 7);
  const Decoded d = s.expect_flow(at({0, 1, 2, 6}));  // libipt stops at the TNT
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_STREQ(d.gaps[0].code, "E-DATA-003");
  EXPECT_EQ(d.gaps[0].resume_ip, A);
}

TEST(Flow, TraceStopRegion) {
  Scene s;
  s.code(A, {0x90, 0xeb, 0x0e}).start(A);
  s.pt.tip_pgd(A + 0x11);
  s.pt.stop();
  const Decoded d = s.expect(at({0, 1}));
  EXPECT_EQ(d.of(EventKind::kTraceStopPacket).size(), 1U);
}

// ---- transactions ----

TEST(Flow, TransactionCommits) {
  Scene s;
  // 0: XBEGIN +10; 6: NOP; 7: XEND; a: NOP; b: NOP
  s.code(A, {0xc7, 0xf8, 0x10, 0, 0, 0, 0x90, 0x0f, 0x01, 0xd5, 0x90, 0x90}).start(A);
  s.pt.mode_tsx(true, false);
  s.pt.fup(A + 6);
  s.pt.mode_tsx(false, false);
  s.pt.fup(A + 0xa);
  stop_at(s, A + 0xb);
  const Decoded d = s.expect(at({0, 6, 7, 0xa}));
  EXPECT_EQ(d.ran[0].flags & Step::kTransaction, 0);
  EXPECT_NE(d.ran[1].flags & Step::kTransaction, 0);
  EXPECT_NE(d.ran[2].flags & Step::kTransaction, 0);
  EXPECT_EQ(d.ran[3].flags & Step::kTransaction, 0);
  ASSERT_EQ(d.of(EventKind::kTsxBegin).size(), 1U);
  EXPECT_EQ(d.of(EventKind::kTsxBegin)[0].ip, A + 6);
  EXPECT_EQ(d.of(EventKind::kTsxCommit).size(), 1U);
}

TEST(Flow, TransactionAborts) {
  Scene s;
  s.code(A, {0xc7, 0xf8, 0x10, 0, 0, 0, 0x90, 0x90, 0x90}).code(A + 0x16, {0x90, 0x90}).start(A);
  s.pt.mode_tsx(true, false);
  s.pt.fup(A + 6);
  s.pt.mode_tsx(false, true);
  s.pt.fup(A + 8);
  s.pt.tip(A + 0x16);
  stop_at(s, A + 0x17);
  const Decoded d = s.expect(at({0, 6, 7, 0x16}));
  EXPECT_NE(d.ran[2].flags & Step::kTransaction, 0);
  EXPECT_EQ(d.ran[3].flags & Step::kTransaction, 0);
  EXPECT_EQ(d.of(EventKind::kTsxAbort).size(), 1U);
}

// ---- code size ----

TEST(Flow, CodeSizeChangesAtFarJumps) {
  Scene s;
  constexpr Addr U = Scene::kUserCode, V = 0x500000;
  // 64 bits: JMP FAR [RDI]. 32 bits: 40 is INC EAX, not REX.
  s.code(U, {0x40, 0x90, 0xff, 0x2f}).code(V, {0x40, 0x90, 0xea, 0, 0, 0x40, 0, 0x33, 0});
  s.code(U + 0x100, {0x40, 0x90, 0x90}).start(U);
  s.pt.mode_exec(ExecMode::k32);
  s.pt.tip(V);
  s.pt.mode_exec(ExecMode::k64);
  s.pt.tip(U + 0x100);
  stop_at(s, U + 0x102);
  const Decoded d = s.expect({U, U + 2, V, V + 1, V + 2, U + 0x100});
  EXPECT_EQ(d.ran[2].mode, 32);
  EXPECT_EQ(d.ran[5].mode, 64);
  const auto modes = d.of(EventKind::kExecMode);
  ASSERT_EQ(modes.size(), 2U);
  EXPECT_EQ(modes[0].a, 32U);
  EXPECT_EQ(modes[1].a, 64U);
}

TEST(Flow, CodeOfSixteenBits) {
  Scene s;
  constexpr Addr B = 0x7c00;
  // MOV AX, imm16; JE +2; JMP rel16 to B
  s.code(B, {0xb8, 0x34, 0x12, 0x74, 0x02, 0x90, 0x90, 0xe9, 0xf6, 0xff});
  PsbPlus g;
  g.ip = B;
  g.exec = ExecMode::k16;
  s.pt.psb_plus(g);
  bits(s, {1, 0});
  stop_at(s, B + 6);
  s.expect({B, B + 3, B + 7, B, B + 3, B + 5});
}

TEST(Flow, CodeSizeWithAnInterrupt) {
  Scene s;
  constexpr Addr V = 0x500000;
  s.code(V, {0x40, 0x90, 0x90, 0x90}).code(A, {0x90, 0x48, 0xcf});
  PsbPlus g;
  g.ip = V;
  g.exec = ExecMode::k32;
  s.pt.psb_plus(g);
  s.pt.fup(V + 2);
  s.pt.mode_exec(ExecMode::k64);
  s.pt.tip(A);
  s.pt.mode_exec(ExecMode::k32);
  s.pt.tip(V + 2);
  stop_at(s, V + 3);
  const Decoded d = s.expect({V, V + 1, A, A + 1, V + 2});
  EXPECT_EQ(d.ran[4].mode, 32);
}

// ---- packets beside the flow ----

TEST(Flow, StatePackets) {
  Scene s;
  s.code(A, {0x90, 0x0f, 0x22, 0xd8, 0x90, 0x74, 0x00, 0x90, 0x90}).start(A);
  s.pt.pip(0x1234000, true);
  s.pt.vmcs(0x7000);
  s.pt.mnt(0x55);
  s.pt.cbr(33);
  bits(s, {0});
  stop_at(s, A + 8);
  // libipt binds the VMCS packet to a VMPTRLD, which is not there.
  const Decoded d = s.expect_flow(at({0, 1, 4, 5, 7}));
  ASSERT_EQ(d.of(EventKind::kPaging).size(), 1U);
  EXPECT_EQ(d.of(EventKind::kPaging)[0].a, 0x1234000U);
  EXPECT_EQ(d.of(EventKind::kPaging)[0].b, 1U);
  EXPECT_EQ(d.of(EventKind::kVmcs)[0].a, 0x7000U);
  EXPECT_EQ(d.of(EventKind::kMaintenance)[0].a, 0x55U);
  EXPECT_EQ(d.of(EventKind::kCbr)[0].a, 33U);
}

TEST(Flow, PtwriteBindsToItsInstruction) {
  Scene s;
  // 0: PTWRITE RAX; 5: NOP; 6: PTWRITE EAX; a: JE
  s.code(A, {0xf3, 0x48, 0x0f, 0xae, 0xe0, 0x90, 0xf3, 0x0f, 0xae, 0xe0, 0x74, 0x00, 0x90, 0x90}).start(A);
  s.pt.ptw(0x1122334455667788, true, false);
  s.pt.ptw(0x99, false, false);
  bits(s, {0});
  stop_at(s, A + 0xd);
  const Decoded d = s.expect(at({0, 5, 6, 0xa, 0xc}));
  const auto w = d.of(EventKind::kPtwrite);
  ASSERT_EQ(w.size(), 2U);
  EXPECT_EQ(w[0].ip, A);
  EXPECT_EQ(w[0].a, 0x1122334455667788U);
  EXPECT_EQ(w[0].b, 8U);
  EXPECT_EQ(w[1].ip, A + 6);
  EXPECT_EQ(w[1].b, 4U);
}

TEST(Flow, PtwriteWithAddress) {
  Scene s;
  s.code(A, {0x90, 0xf3, 0x48, 0x0f, 0xae, 0xe0, 0x74, 0x00, 0x90, 0x90}).start(A);
  s.pt.ptw(7, true, true);
  s.pt.fup(A + 1);
  bits(s, {0});
  stop_at(s, A + 9);
  const Decoded d = s.expect(at({0, 1, 6, 8}));
  const auto w = d.of(EventKind::kPtwrite);
  ASSERT_EQ(w.size(), 1U);
  EXPECT_EQ(w[0].ip, A + 1);
  EXPECT_EQ(w[0].at, 1U);
  EXPECT_EQ(w[0].a, 7U);
}

TEST(Flow, PtwWithoutAPtwriteInstructionIsReportedWithoutAddress) {
  Scene s;
  s.code(A, {0x90, 0x74, 0x00, 0x90, 0x90}).start(A);
  s.pt.ptw(7, true, false);
  bits(s, {0});
  stop_at(s, A + 4);
  const Decoded d = s.expect_flow(at({0, 1, 3}));  // libipt gives up at the JE
  const auto w = d.of(EventKind::kPtwrite);
  ASSERT_EQ(w.size(), 1U);
  EXPECT_EQ(w[0].ip, 0U);
  EXPECT_TRUE(d.gaps.empty());
}

TEST(Flow, PowerEvents) {
  Scene s;
  s.code(A, {0x90, 0x0f, 0x01, 0xc9, 0x90, 0x90}).start(A);
  s.pt.mwait(0x60, 1);
  s.pt.raw(Bytes{0x02, 0x22, 0x80, 0x21});  // PWRE, HW; the writer's library puts that bit elsewhere
  s.pt.exstop(true);
  s.pt.fup(A + 4);
  s.pt.pwrx(2, 3, 1);
  stop_at(s, A + 5);
  const Decoded d = s.expect(at({0, 1, 4}));
  ASSERT_EQ(d.of(EventKind::kMwait).size(), 1U);
  EXPECT_EQ(d.of(EventKind::kMwait)[0].ip, A + 4);
  EXPECT_EQ(d.of(EventKind::kMwait)[0].a, 0x60U);
  EXPECT_EQ(d.of(EventKind::kMwait)[0].b, 1U);
  ASSERT_EQ(d.of(EventKind::kPwre).size(), 1U);
  EXPECT_EQ(d.of(EventKind::kPwre)[0].a, 2U);
  EXPECT_EQ(d.of(EventKind::kPwre)[0].b, 0x101U);
  ASSERT_EQ(d.of(EventKind::kExstop).size(), 1U);
  EXPECT_EQ(d.of(EventKind::kExstop)[0].ip, A + 4);
  ASSERT_EQ(d.of(EventKind::kPwrx).size(), 1U);
  EXPECT_EQ(d.of(EventKind::kPwrx)[0].a, 2U);
  EXPECT_EQ(d.of(EventKind::kPwrx)[0].b, 0x103U);
}

TEST(Flow, PowerEventsWithoutAddress) {
  Scene s;
  s.code(A, {0x90, 0x74, 0x00, 0x90, 0x90}).start(A);
  s.pt.exstop(false);
  s.pt.pwrx(1, 1, 1);
  bits(s, {0});
  stop_at(s, A + 4);
  const Decoded d = s.expect(at({0, 1, 3}));
  ASSERT_EQ(d.of(EventKind::kExstop).size(), 1U);
  EXPECT_EQ(d.of(EventKind::kExstop)[0].ip, 0U);
}

TEST(Flow, PebsBlocks) {
  Scene s;
  s.code(A, {0x90, 0x74, 0x00, 0x90, 0x90}).start(A);
  s.pt.bbp(4, false);
  s.pt.bip(0, 0x1111);
  s.pt.bip(1, 0x2222);
  s.pt.bbp(1, true);
  s.pt.bip(5, 0x33);
  s.pt.bep(true);
  s.pt.fup(A + 1);
  bits(s, {0});
  stop_at(s, A + 4);
  const Decoded d = s.expect_flow(at({0, 1, 3}));  // libipt 2.0.5 does not know these packets
  EXPECT_EQ(d.of(EventKind::kBbp).size(), 2U);
  const auto items = d.of(EventKind::kBip);
  ASSERT_EQ(items.size(), 3U);
  EXPECT_EQ(items[1].a, 0x2222U);
  EXPECT_EQ(items[1].b, 1U);
  EXPECT_EQ(items[2].a, 0x33U);
  ASSERT_EQ(d.of(EventKind::kBep).size(), 1U);
  EXPECT_EQ(d.of(EventKind::kBep)[0].ip, A + 1);
}

// An event with IP bit has its own FUP; the branch of the same event its FUP and TIP.
TEST(Flow, EventTrace) {
  Scene s;
  s.code(A, {0x90, 0x90, 0x90, 0x90, 0x90}).code(A + 0x100, {0x90, 0x48, 0xcf}).start(A);
  s.pt.evd(0, 0xdead);
  s.pt.cfe(1, 14, false);  // an interrupt; its place is that of the branch
  s.pt.fup(A + 1);
  s.pt.tip(A + 0x100);
  s.pt.cfe(2, 0, false);  // IRET
  s.pt.tip(A + 1);
  s.pt.cfe(3, 0, true);  // with an address of its own, and no branch
  s.pt.fup(A + 2);
  stop_at(s, A + 4);
  const Decoded d =
      s.expect_flow(at({0, 0x100, 0x101, 1, 2, 3}));  // libipt 2.0.5 does not know these packets
  const auto e = d.of(EventKind::kCfe);
  ASSERT_EQ(e.size(), 3U);
  EXPECT_EQ(e[0].a, 1U);
  EXPECT_EQ(e[0].b, 14U);
  EXPECT_EQ(e[2].ip, A + 2);
  EXPECT_EQ(e[2].at, 4U);
  ASSERT_EQ(d.of(EventKind::kEvd).size(), 1U);
  EXPECT_EQ(d.of(EventKind::kEvd)[0].b, 0xdeadU);
  EXPECT_TRUE(d.gaps.empty());
}

// ---- overflow ----

TEST(Flow, OverflowResolvedByFup) {
  Scene s;
  s.code(A, {0x90, 0x74, 0x02, 0x90, 0x90, 0x90}).code(A + 0x100, {0x90, 0x90}).start(A);
  bits(s, {0});
  s.pt.ovf();
  s.pt.fup(A + 0x100, IpForm::kSext48);
  stop_at(s, A + 0x101);
  const Decoded d = s.expect(at({0, 1, 0x100}));
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_STREQ(d.gaps[0].code, "E-LOST-003");
  EXPECT_EQ(d.gaps[0].resume_ip, A + 0x100);
  ASSERT_EQ(d.of(EventKind::kOverflow).size(), 1U);
  EXPECT_EQ(d.of(EventKind::kOverflow)[0].ip, A + 0x100);
  EXPECT_NE(d.ran[2].flags & Step::kAfterGap, 0);
}

TEST(Flow, OverflowWhileOffResolvedByPge) {
  Scene s;
  s.code(A, {0x90, 0x74, 0x02, 0x90, 0x90, 0x90}).code(A + 0x100, {0x90, 0x90}).start(A);
  bits(s, {0});
  s.pt.ovf();
  s.pt.tip_pge(A + 0x100, IpForm::kSext48);
  stop_at(s, A + 0x101);
  const Decoded d = s.expect(at({0, 1, 0x100}));
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_STREQ(d.gaps[0].code, "E-LOST-003");
}

TEST(Flow, OverflowClearsTheReturnStack) {
  Scene s;
  // 0: CALL 10; 10: JE 12; 12: RET
  s.code(A, {0xe8, 0x0b, 0, 0, 0, 0x90, 0x90}).code(A + 0x10, {0x74, 0x00, 0xc3}).start(A);
  bits(s, {0});
  s.pt.ovf();
  s.pt.fup(A + 0x12, IpForm::kSext48);
  s.pt.tip(A + 5);
  stop_at(s, A + 6);
  s.expect(at({0, 0x10, 0x12, 5}));
}

TEST(Flow, Skd010OverflowFollowedByTip) {
  Scene s;
  s.config.cpu = {true, 6, 0x5e, 3};
  s.code(A, {0x90, 0x74, 0x02, 0x90}).code(A + 0x100, {0x90, 0x90}).start(A);
  bits(s, {0});
  s.pt.ovf();
  s.pt.tip(A + 0x100, IpForm::kSext48);  // the FUP is missing
  stop_at(s, A + 0x101);
  s.expect(at({0, 1, 0x100}));
}

TEST(Flow, Apl11OverflowFollowedByPgd) {
  Scene s;
  s.config.cpu = {true, 6, 0x5c, 9};
  s.code(A, {0x90, 0x74, 0x02, 0x90}).code(A + 0x100, {0x90, 0x90}).start(A);
  bits(s, {0});
  s.pt.ovf();
  s.pt.tip_pgd();
  s.pt.tip_pge(A + 0x100, IpForm::kSext48);
  stop_at(s, A + 0x101);
  s.expect(at({0, 1, 0x100}));
}

TEST(Flow, Apl12OverflowFollowedByABogusFup) {
  Scene s;
  s.config.cpu = {true, 6, 0x5c, 9};
  s.code(A, {0x90, 0x74, 0x02, 0x90}).code(A + 0x100, {0x90, 0x90}).start(A);
  bits(s, {0});
  s.pt.ovf();
  s.pt.fup(A + 0x80, IpForm::kSext48);  // tracing is off, as the TIP.PGE shows; no code is there
  s.pt.tip_pge(A + 0x100, IpForm::kSext48);
  stop_at(s, A + 0x101);
  s.expect(at({0, 1, 0x100}));
}

// ---- damage ----

TEST(Flow, BadPacketEndsTheSegment) {
  Scene s;
  s.code(A, {0x90, 0x74, 0x02, 0x90, 0x90, 0x90, 0x90}).start(A);
  bits(s, {1});
  s.pt.raw(Bytes{0x02, 0xff, 0xff});
  bits(s, {1, 1});
  s.pt.flush();
  const uint64_t psb = s.pt.offset();
  s.start(A + 3);
  stop_at(s, A + 5);
  const Decoded d = s.decode_all_ways();
  EXPECT_EQ(hex(d.ips()), hex(at({0, 1, 3, 4})));
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_STREQ(d.gaps[0].code, "E-DATA-001");
  EXPECT_EQ(d.gaps[0].end, psb);
  EXPECT_EQ(d.gaps[0].at, 2U);
}

TEST(Flow, MissingTextResumesAtTheNextCompleteTip) {
  Scene s;
  constexpr Addr kUnknown = A + 0x5000;
  s.code(A, {0xff, 0xe0}).code(A + 0x100, {0x90, 0x90}).start(A);
  s.pt.tip(kUnknown);
  bits(s, {1, 0, 1});
  s.pt.tip(kUnknown + 0x40);  // compressed against the last one: last-IP lives on in the gap
  bits(s, {1});
  s.pt.tip(A + 0x100, IpForm::k16);
  stop_at(s, A + 0x101);
  const Decoded d = s.expect_flow(at({0, 0x100}));  // libipt gives up at the first
  ASSERT_EQ(d.gaps.size(), 1U) << "neighbours are one";
  EXPECT_STREQ(d.gaps[0].code, "E-TEXT-001");
  EXPECT_EQ(d.gaps[0].ip, kUnknown);
  EXPECT_EQ(d.gaps[0].resume_ip, A + 0x100);
  EXPECT_EQ(d.gaps[0].at, 1U);
  EXPECT_GE(d.gaps[0].end - d.gaps[0].begin, 4U);
}

TEST(Flow, MissingTextInsideABlockKeepsWhatIsKnown) {
  Scene s;
  s.code(A, {0x90, 0x90}).code(A + 0x100, {0x90, 0x90}).start(A);
  s.pt.tip(A + 0x100);
  stop_at(s, A + 0x101);
  const Decoded d = s.expect_flow(at({0, 1, 0x100}));  // libipt gives up at A + 2
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_EQ(d.gaps[0].ip, A + 2);
  EXPECT_EQ(d.gaps[0].resume_ip, A + 0x100);
}

TEST(Flow, InterruptInsideMissingText) {
  Scene s;
  s.code(A, {0x90, 0x90}).code(A + 0x100, {0x90, 0x48, 0xcf}).start(A);
  s.pt.fup(A + 5);
  s.pt.tip(A + 0x100);
  s.pt.tip(A);
  stop_at(s, A + 1);
  const Decoded d = s.expect_flow(at({0, 1, 0x100, 0x101, 0}));
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_STREQ(d.gaps[0].code, "E-TEXT-001");
}

TEST(Flow, NoInstruction) {
  Scene s;
  s.code(A, {0x90, 0x06, 0x90}).code(A + 0x100, {0x90, 0x90}).start(A);
  s.pt.tip(A + 0x100);
  stop_at(s, A + 0x101);
  const Decoded d = s.expect_flow(at({0x100}));
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_STREQ(d.gaps[0].code, "E-FLOW-005");
}

TEST(Flow, TraceAndTextDisagree) {
  Scene s;
  s.code(A, {0x90, 0x74, 0x02, 0x90, 0x90, 0x90}).code(A + 0x100, {0x90, 0x90}).start(A);
  s.pt.tip(A + 0x100);  // but a conditional branch needs a bit
  stop_at(s, A + 0x101);
  const Decoded d = s.expect_flow(at({0x100}));
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_STREQ(d.gaps[0].code, "E-FLOW-001");
  EXPECT_EQ(d.gaps[0].ip, A);
}

TEST(Flow, EndlessLoopWithoutTrace) {
  Scene s;
  s.code(A, {0x90, 0xeb, 0xfd}).code(A + 0x100, {0x90, 0x90}).start(A);
  s.pt.tip(A + 0x100);
  stop_at(s, A + 0x101);
  const Decoded d = s.decode();
  EXPECT_EQ(hex(d.ips()), hex(at({0x100})));
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_STREQ(d.gaps[0].code, "E-FLOW-003");
}

// ---- sync points and ends ----

TEST(Flow, SegmentsMeetInsideABlock) {
  Scene s;
  // The second sync point stands inside a straight run; a call before it is forgotten there.
  s.code(A, {0xe8, 0x0b, 0, 0, 0, 0x90, 0x90, 0x90}).code(A + 0x10, {0x90, 0x90, 0x90, 0xc3}).start(A);
  s.start(A + 0x12);
  s.pt.tip(A + 5);
  stop_at(s, A + 7);
  const Decoded d = s.expect(at({0, 0x10, 0x11, 0x12, 0x13, 5, 6}));
  EXPECT_TRUE(d.gaps.empty());
  EXPECT_EQ(d.per_segment[0].first, 3U);
  EXPECT_EQ(d.of(EventKind::kPsb).size(), 2U);
}

TEST(Flow, SyncPointRightAfterABranch) {
  Scene s;
  s.code(A, {0x90, 0x74, 0x02, 0x90, 0x90, 0x90, 0x90}).start(A);
  bits(s, {1});
  s.start(A + 5);
  stop_at(s, A + 6);
  s.expect(at({0, 1, 5}));
}

TEST(Flow, SyncPointThatTheFlowCannotReach) {
  Scene s;
  s.code(A, {0x90, 0x74, 0x02, 0x90, 0x90, 0x90}).code(A + 0x100, {0x90, 0x90}).start(A);
  s.start(A + 0x100);
  stop_at(s, A + 0x101);
  const Decoded d = s.decode_all_ways();
  EXPECT_EQ(hex(d.ips()), hex(at({0x100})));
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_STREQ(d.gaps[0].code, "E-FLOW-006");
}

TEST(Flow, SyncPointWhileTracingIsOff) {
  Scene s;
  s.code(A, {0x90, 0x90, 0x90}).start(A);
  stop_at(s, A + 1);
  s.pt.psb_plus({});
  s.pt.tip_pge(A + 1);
  stop_at(s, A + 2);
  const Decoded d = s.expect(at({0, 1}));
  EXPECT_TRUE(d.gaps.empty());
}

// The last thing that is certain is the branch whose outcome the trace does not hold any more.
TEST(Flow, EndOfTrace) {
  Scene s;
  s.code(A, {0x90, 0x74, 0x02, 0x90, 0x90, 0x90, 0x74, 0x00}).start(A);
  bits(s, {1});
  const Decoded d = s.expect_flow(at({0, 1, 5, 6}));
  EXPECT_TRUE(d.gaps.empty());
  // libipt knows that nothing follows, and stops right after the last packet's branch.
  EXPECT_EQ(hex(s.decode_by_reference().ips()), hex(at({0, 1})));
}

TEST(Flow, PacketCutByTheEnd) {
  Scene s;
  s.code(A, {0x90, 0x74, 0x02, 0x90, 0x90, 0xff, 0xe0}).start(A);
  bits(s, {1});
  s.pt.flush();
  s.pt.raw(Bytes{0x6d, 0x01, 0x02});  // half a TIP
  const Decoded d = s.decode_all_ways();
  EXPECT_EQ(hex(d.ips()), hex(at({0, 1, 5})));
}

// ---- address spaces ----

TEST(Flow, UserTextBelongsToTheTaskOfTheMoment) {
  Scene s;
  s.with_clock();
  constexpr Addr U = Scene::kUserCode;
  s.code(U, {0x90, 0x0f, 0x05}).code(A, {0x48, 0x0f, 0x07}).start(U, 1000);
  s.pt.tip(A);
  s.pt.tip(U);
  stop_at(s, U + 1);
  s.expect({U, U + 1, A, U});

  Scene unknown;
  unknown.stream.contexts.clear();
  unknown.code(U, {0x90, 0x90}).code(A, {0x90, 0x90}).start(U);
  unknown.pt.fup(U + 1);
  unknown.pt.tip(A);
  stop_at(unknown, A + 1);
  const Decoded d = unknown.expect_flow({A});
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_STREQ(d.gaps[0].code, "E-TEXT-002");
}

}  // namespace
}  // namespace asof::x86::test
