// The flow, one scenario at a time: transactions, code of other sizes, and packets besides the flow.
#include "tests/arch/x86/flow_fixture.h"

namespace asof::x86::test {
namespace {

// ---- transactions ----

TEST(Flow, TransactionCommits) {
  FlowFixture s;
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
  FlowFixture s;
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

// ---- Event Trace ----

TEST(Flow, ControlFlowEventsHaveTheAddressOfTheirInterrupt) {
  FlowFixture s;
  // A: NOP, NOP; B: NOP; JMP RAX
  const Addr b = A + 0x100;
  s.code(A, {0x90, 0x90}).code(b, {0x90, 0xff, 0xe0}).start(A);
  s.pt.cfe(1, 32, false);
  s.pt.fup(A + 1);
  s.pt.tip(b);
  s.pt.cfe(3, 0, false);  // no FUP follows
  s.pt.tip(A);
  stop_at(s, A + 1);
  const Decoded d = s.decode();  // libipt does not know these packets
  EXPECT_EQ(hex(d.ips()), hex({A, b, b + 1, A}));
  const auto events = d.of(EventKind::kCfe);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].ip, A + 1);
  EXPECT_EQ(events[0].b, 32U);
  EXPECT_EQ(events[1].ip, 0U);
  EXPECT_EQ(events[1].a, 3U);
  ASSERT_EQ(d.of(EventKind::kAsync).size(), 2U);
  EXPECT_EQ(d.of(EventKind::kAsync)[0].a, b);
}

// ---- code size ----

TEST(Flow, CodeSizeChangesAtFarJumps) {
  FlowFixture s;
  constexpr Addr U = FlowFixture::kUserCode, V = 0x500000;
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
  FlowFixture s;
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
  FlowFixture s;
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

// ---- packets besides the flow ----

TEST(Flow, StatePackets) {
  FlowFixture s;
  s.code(A, {0x90, 0x0f, 0x22, 0xd8, 0x90, 0x74, 0x00, 0x90, 0x90}).start(A);
  s.pt.pip(0x1234000);
  s.pt.vmcs(0x7000);
  s.pt.mnt(0x55);
  s.pt.cbr(33);
  bits(s, {0});
  stop_at(s, A + 8);
  // libipt binds the VMCS packet to a VMPTRLD, which is missing here.
  const Decoded d = s.expect_flow(at({0, 1, 4, 5, 7}));
  ASSERT_EQ(d.of(EventKind::kPaging).size(), 1U);
  EXPECT_EQ(d.of(EventKind::kPaging)[0].a, 0x1234000U);
  EXPECT_EQ(d.of(EventKind::kPaging)[0].b, 0U);
  EXPECT_EQ(d.of(EventKind::kVmcs)[0].a, 0x7000U);
  EXPECT_EQ(d.of(EventKind::kMaintenance)[0].a, 0x55U);
  EXPECT_EQ(d.of(EventKind::kCbr)[0].a, 33U);
}

// Only kernel code is traced: in the guest's user code the trace is off, and an exit from there gives a
// TIP.PGE.
TEST(Flow, GuestWithTraceOffAtItsExit) {
  FlowFixture s;
  s.code(A, {0x90, 0x0f, 0x01, 0xc3, 0x90, 0x90}).start(A);  // VMRESUME
  s.pt.pip(0x1000, true);
  s.pt.tip(A + 4);
  s.pt.tip_pgd();
  s.pt.tip_pge(A + 4);
  s.pt.ptw(0x99, false, false);
  s.pt.tip_pgd();
  s.pt.pip(0x2000);
  s.pt.tip_pge(A + 4);
  stop_at(s, A + 5);
  const Decoded d = s.expect_flow({A, A + 1, A + 4});
  EXPECT_EQ(d.gap_codes(), std::vector<Code>{Code::kGuestRan});
  ASSERT_EQ(d.of(EventKind::kPaging).size(), 2U);
  EXPECT_EQ(d.of(EventKind::kPaging)[0].b, 1U);
  EXPECT_EQ(d.of(EventKind::kPtwrite).size(), 1U);
}

// A PIP of a guest where the text has no VM entry on the path: the two disagree, but it is a guest.
TEST(Flow, GuestWithoutAnEntry) {
  FlowFixture s;
  s.code(A, {0x90, 0xff, 0xe0, 0x90, 0x90}).start(A);  // JMP RAX
  s.pt.pip(0x1000, true);
  s.pt.tip(A + 3);
  s.pt.pip(0x2000);
  s.pt.tip(A + 3);
  stop_at(s, A + 4);
  const Decoded d = s.expect_flow({A + 3});
  EXPECT_EQ(d.gap_codes(), (std::vector<Code>{Code::kTraceContradictsText, Code::kGuestRan}));
}

TEST(Flow, PtwriteBindsToItsInstruction) {
  FlowFixture s;
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
  FlowFixture s;
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
  FlowFixture s;
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
  FlowFixture s;
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
  FlowFixture s;
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
  FlowFixture s;
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

// An event with the IP bit has its own FUP; the branch of the same event has its FUP and TIP.
TEST(Flow, EventTrace) {
  FlowFixture s;
  s.code(A, {0x90, 0x90, 0x90, 0x90, 0x90}).code(A + 0x100, {0x90, 0x48, 0xcf}).start(A);
  s.pt.evd(0, 0xdead);
  s.pt.cfe(1, 14, false);  // an interrupt; its location is that of the branch
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

}  // namespace
}  // namespace asof::x86::test
