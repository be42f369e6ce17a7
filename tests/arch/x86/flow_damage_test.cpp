// The flow, one scenario at a time: overflow, damage, missing text, sync points, ends of trace, address
// spaces.
#include <algorithm>

#include "tests/arch/x86/flow_fixture.h"

namespace asof::x86::test {
namespace {

// ---- overflow ----

TEST(Flow, OverflowResolvedByFup) {
  FlowFixture s;
  s.code(A, {0x90, 0x74, 0x02, 0x90, 0x90, 0x90}).code(A + 0x100, {0x90, 0x90}).start(A);
  bits(s, {0});
  s.pt.ovf();
  s.pt.fup(A + 0x100, IpForm::kSext48);
  stop_at(s, A + 0x101);
  const Decoded d = s.expect(at({0, 1, 0x100}));
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_EQ(d.gaps[0].code, Code::kTraceOverflow);
  EXPECT_EQ(d.gaps[0].resume_ip, A + 0x100);
  ASSERT_EQ(d.of(EventKind::kOverflow).size(), 1U);
  EXPECT_EQ(d.of(EventKind::kOverflow)[0].ip, A + 0x100);
  EXPECT_NE(d.ran[2].flags & Step::kAfterGap, 0);
}

TEST(Flow, OverflowWhileOffResolvedByPge) {
  FlowFixture s;
  s.code(A, {0x90, 0x74, 0x02, 0x90, 0x90, 0x90}).code(A + 0x100, {0x90, 0x90}).start(A);
  bits(s, {0});
  s.pt.ovf();
  s.pt.tip_pge(A + 0x100, IpForm::kSext48);
  stop_at(s, A + 0x101);
  const Decoded d = s.expect(at({0, 1, 0x100}));
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_EQ(d.gaps[0].code, Code::kTraceOverflow);
}

TEST(Flow, OverflowClearsTheReturnStack) {
  FlowFixture s;
  // 0: CALL 10; 10: JE 12; 12: RET
  s.code(A, {0xe8, 0x0b, 0, 0, 0, 0x90, 0x90}).code(A + 0x10, {0x74, 0x00, 0xc3}).start(A);
  bits(s, {0});
  s.pt.ovf();
  s.pt.fup(A + 0x12, IpForm::kSext48);
  s.pt.tip(A + 5);
  stop_at(s, A + 6);
  s.expect(at({0, 0x10, 0x12, 5}));
}

// What was walked in search of a PTWRITE rests on the text alone; what is found after the OVF says nothing about it.
// Found by tests/fuzz/pt_flow_fuzz.cpp: the contradiction took back what ran before the OVF.
TEST(Flow, OverflowAfterStepsThatNoPacketConfirmed) {
  FlowFixture s;
  // 0: NOP; CALL 10; 10: NOP; RET; 20: NOP; JMP *RAX
  s.code(A, {0x90, 0xe8, 0x0a, 0, 0, 0})
      .code(A + 0x10, {0x90, 0xc3})
      .code(A + 0x20, {0x90, 0xff, 0xe0})
      .start(A);
  s.pt.ptw(1, false, false);
  s.pt.ovf();
  s.pt.fup(A + 0x20, IpForm::kSext48);
  bits(s, {1});  // no conditional branch is there
  const Decoded d = s.expect_flow(at({0, 1}));
  for (const Ran& r : d.ran) EXPECT_EQ(r.confidence, Confidence::kAmbiguous);
  ASSERT_EQ(d.gap_codes(), (std::vector<Code>{Code::kTraceOverflow, Code::kTraceContradictsText}));
  for (const Gap& g : d.gaps) EXPECT_LE(g.step, 1U);
}

// Nothing shows the directions of branches after it either. Found by tests/fuzz/pt_flow_fuzz.cpp, where the block cache
// made a difference of it.
TEST(Flow, OverflowInATraceWithoutTnt) {
  FlowFixture s;
  s.config.no_tnt = true;
  s.code(A, {0x90, 0x90, 0x90}).start(A);
  s.pt.ovf();
  s.pt.fup(A + 1, IpForm::kSext48);
  s.pt.tip(A + 0x100);  // no text there
  s.pt.tip(A + 0x200);
  const Decoded d = s.expect_flow({});
  DecodeOptions uncached = s.options;
  uncached.block_cache = false;
  const Decoded plain = s.run(uncached);
  ASSERT_EQ(d.gap_codes(), plain.gap_codes());
  for (size_t i = 0; i < d.gaps.size(); ++i) {
    EXPECT_EQ(d.gaps[i].begin, plain.gaps[i].begin) << i;
    EXPECT_EQ(d.gaps[i].end, plain.gaps[i].end) << i;
  }
  ASSERT_FALSE(d.gaps.empty());
  EXPECT_EQ(d.gaps.back().code, Code::kNoTntPackets);
}

TEST(Flow, Skd010OverflowFollowedByTip) {
  FlowFixture s;
  s.config.cpu = {true, 6, 0x5e, 3};
  s.code(A, {0x90, 0x74, 0x02, 0x90}).code(A + 0x100, {0x90, 0x90}).start(A);
  bits(s, {0});
  s.pt.ovf();
  s.pt.tip(A + 0x100, IpForm::kSext48);  // the FUP is missing
  stop_at(s, A + 0x101);
  s.expect(at({0, 1, 0x100}));
}

TEST(Flow, Apl11OverflowFollowedByPgd) {
  FlowFixture s;
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
  FlowFixture s;
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
  FlowFixture s;
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
  EXPECT_EQ(d.gaps[0].code, Code::kBadPacket);
  EXPECT_EQ(d.gaps[0].end, psb);
  EXPECT_EQ(d.gaps[0].at, 2U);
}

TEST(Flow, MissingTextResumesAtTheNextCompleteTip) {
  FlowFixture s;
  constexpr Addr kUnknown = A + 0x5000;
  s.code(A, {0xff, 0xe0}).code(A + 0x100, {0x90, 0x90}).start(A);
  s.pt.tip(kUnknown);
  bits(s, {1, 0, 1});
  s.pt.tip(kUnknown + 0x40);  // compressed against the last one: last-IP is kept in the gap
  bits(s, {1});
  s.pt.tip(A + 0x100, IpForm::k16);
  stop_at(s, A + 0x101);
  const Decoded d = s.expect_flow(at({0, 0x100}));  // libipt gives up at the first
  ASSERT_EQ(d.gaps.size(), 1U) << "adjacent gaps are one";
  EXPECT_EQ(d.gaps[0].code, Code::kNoBytes);
  EXPECT_EQ(d.gaps[0].ip, kUnknown);
  EXPECT_EQ(d.gaps[0].resume_ip, A + 0x100);
  EXPECT_EQ(d.gaps[0].at, 1U);
  EXPECT_GE(d.gaps[0].end - d.gaps[0].begin, 4U);
}

TEST(Flow, MissingTextInsideABlockKeepsWhatIsKnown) {
  FlowFixture s;
  s.code(A, {0x90, 0x90}).code(A + 0x100, {0x90, 0x90}).start(A);
  s.pt.tip(A + 0x100);
  stop_at(s, A + 0x101);
  const Decoded d = s.expect_flow(at({0, 1, 0x100}));  // libipt gives up at A + 2
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_EQ(d.gaps[0].ip, A + 2);
  EXPECT_EQ(d.gaps[0].resume_ip, A + 0x100);
}

TEST(Flow, InterruptInsideMissingText) {
  FlowFixture s;
  s.code(A, {0x90, 0x90}).code(A + 0x100, {0x90, 0x48, 0xcf}).start(A);
  s.pt.fup(A + 5);
  s.pt.tip(A + 0x100);
  s.pt.tip(A);
  stop_at(s, A + 1);
  const Decoded d = s.expect_flow(at({0, 1, 0x100, 0x101, 0}));
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_EQ(d.gaps[0].code, Code::kNoBytes);
}

TEST(Flow, NoInstruction) {
  FlowFixture s;
  s.code(A, {0x90, 0x06, 0x90}).code(A + 0x100, {0x90, 0x90}).start(A);
  s.pt.tip(A + 0x100);
  stop_at(s, A + 0x101);
  const Decoded d = s.expect_flow(at({0x100}));
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_EQ(d.gaps[0].code, Code::kNotAnInstruction);
}

// UD0, UD1 and UD2 always fault: that the flow went on behind one without a FUP contradicts the text.
TEST(Flow, NothingPassesAnUndefinedInstruction) {
  const std::vector<uint8_t> undefined[] = {{0x0f, 0xff, 0xc0}, {0x0f, 0xb9, 0x40, 0x10}, {0x0f, 0x0b}};
  for (const std::vector<uint8_t>& ud : undefined) {
    FlowFixture s;
    std::vector<uint8_t> code{0x90};
    std::ranges::copy(ud, std::back_inserter(code));
    code.insert(code.end(), {0xff, 0xe0});  // JMP RAX
    s.code(A, code).code(A + 0x100, {0x90, 0x90}).start(A);
    s.pt.tip(A + 0x100);
    stop_at(s, A + 0x101);
    const Decoded d = s.expect_flow(at({0x100}));
    ASSERT_EQ(d.gaps.size(), 1U);
    EXPECT_EQ(d.gaps[0].code, Code::kNotAnInstruction);
  }
}

TEST(Flow, TraceAndTextDisagree) {
  FlowFixture s;
  s.code(A, {0x90, 0x74, 0x02, 0x90, 0x90, 0x90}).code(A + 0x100, {0x90, 0x90}).start(A);
  s.pt.tip(A + 0x100);  // a conditional branch needs a bit
  stop_at(s, A + 0x101);
  const Decoded d = s.expect_flow(at({0x100}));
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_EQ(d.gaps[0].code, Code::kTraceContradictsText);
  EXPECT_EQ(d.gaps[0].ip, A);
}

TEST(Flow, EndlessLoopWithoutTrace) {
  FlowFixture s;
  s.code(A, {0x90, 0xeb, 0xfd}).code(A + 0x100, {0x90, 0x90}).start(A);
  s.pt.tip(A + 0x100);
  stop_at(s, A + 0x101);
  const Decoded d = s.decode();
  EXPECT_EQ(hex(d.ips()), hex(at({0x100})));
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_EQ(d.gaps[0].code, Code::kRunaway);
}

// ---- sync points and ends ----

TEST(Flow, SegmentsMeetInsideABlock) {
  FlowFixture s;
  // The second sync point is inside straight code; a call before it is forgotten there.
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
  FlowFixture s;
  s.code(A, {0x90, 0x74, 0x02, 0x90, 0x90, 0x90, 0x90}).start(A);
  bits(s, {1});
  s.start(A + 5);
  stop_at(s, A + 6);
  s.expect(at({0, 1, 5}));
}

TEST(Flow, SyncPointThatTheFlowCannotReach) {
  FlowFixture s;
  s.code(A, {0x90, 0x74, 0x02, 0x90, 0x90, 0x90}).code(A + 0x100, {0x90, 0x90}).start(A);
  s.start(A + 0x100);
  stop_at(s, A + 0x101);
  const Decoded d = s.decode_all_ways();
  EXPECT_EQ(hex(d.ips()), hex(at({0x100})));
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_EQ(d.gaps[0].code, Code::kSyncPointNotReached);
}

TEST(Flow, SyncPointWhileTracingIsOff) {
  FlowFixture s;
  s.code(A, {0x90, 0x90, 0x90}).start(A);
  stop_at(s, A + 1);
  s.pt.psb_plus({});
  s.pt.tip_pge(A + 1);
  stop_at(s, A + 2);
  const Decoded d = s.expect(at({0, 1}));
  EXPECT_TRUE(d.gaps.empty());
}

// The last certain instruction is the branch whose outcome is no longer in the trace.
TEST(Flow, EndOfTrace) {
  FlowFixture s;
  s.code(A, {0x90, 0x74, 0x02, 0x90, 0x90, 0x90, 0x74, 0x00}).start(A);
  bits(s, {1});
  const Decoded d = s.expect_flow(at({0, 1, 5, 6}));
  EXPECT_TRUE(d.gaps.empty());
  // libipt knows that nothing follows, and stops right after the last packet's branch.
  EXPECT_EQ(hex(s.decode_by_reference().ips()), hex(at({0, 1})));
}

TEST(Flow, PacketCutByTheEnd) {
  FlowFixture s;
  s.code(A, {0x90, 0x74, 0x02, 0x90, 0x90, 0xff, 0xe0}).start(A);
  bits(s, {1});
  s.pt.flush();
  s.pt.raw(Bytes{0x6d, 0x01, 0x02});  // half a TIP
  const Decoded d = s.decode_all_ways();
  EXPECT_EQ(hex(d.ips()), hex(at({0, 1, 5})));
}

// ---- address spaces ----

TEST(Flow, UserTextBelongsToTheTaskOfTheMoment) {
  FlowFixture s;
  s.with_clock();
  constexpr Addr U = FlowFixture::kUserCode;
  s.code(U, {0x90, 0x0f, 0x05}).code(A, {0x48, 0x0f, 0x07}).start(U, 1000);
  s.pt.tip(A);
  s.pt.tip(U);
  stop_at(s, U + 1);
  s.expect({U, U + 1, A, U});

  FlowFixture unknown;
  unknown.stream.contexts.clear();
  unknown.code(U, {0x90, 0x90}).code(A, {0x90, 0x90}).start(U);
  unknown.pt.fup(U + 1);
  unknown.pt.tip(A);
  stop_at(unknown, A + 1);
  const Decoded d = unknown.expect_flow({A});
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_EQ(d.gaps[0].code, Code::kNoProcess);
}

// The last packet in front of a PSB lacks its end. Read on into the PSB it would be a TIP to 8202, a CYC of three bytes, or bits
// that a branch takes. Found by tests/fuzz/pt_reference_fuzz.cpp.
TEST(Flow, PacketThatReachesIntoThePsbIsNone) {
  const std::vector<std::vector<uint8_t>> cut{{0x2d}, {0xff, 0xc3}, {0x02, 0xa3}, {0x19, 1, 2, 3}, {0x59}};
  for (const std::vector<uint8_t>& packet : cut) {
    FlowFixture s;
    // 0: JE 0; JMP 0
    s.code(A, {0x74, 0xfe, 0xeb, 0xfc}).start(A);
    for (int i = 0; i < 40; ++i) bits(s, {1, 1, 0, 1, 1, 1});
    s.pt.raw(packet);
    s.pt.psb_plus({});
    s.pt.tip_pge(A, IpForm::kSext48);
    bits(s, {1});
    stop_at(s, A);
    const Decoded d = s.decode_all_ways();
    ASSERT_EQ(d.gap_codes(), std::vector{Code::kBadPacket}) << unsigned{packet[0]};
    EXPECT_EQ(d.gaps[0].end - d.gaps[0].begin, packet.size());
    // 240 branches and 40 jumps; what follows the last of them is not known. One branch is behind the PSB.
    EXPECT_EQ(d.ran.size(), 281U);
  }
}

}  // namespace
}  // namespace asof::x86::test
