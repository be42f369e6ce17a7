// The flow where single packets are missing, or the trace ends: what was found by random changes of traces.
#include "tests/arch/x86/flow_fixture.h"

namespace asof::x86::test {
namespace {

// One gap, behind so many instructions.
void expect_out_of_place(const Decoded& d, size_t at) {
  ASSERT_EQ(d.gap_codes(), std::vector<Code>{Code::kPacketOutOfPlace});
  EXPECT_EQ(d.gaps[0].at, at);
}

TEST(Flow, OverflowResolvedBySyncPoint) {
  FlowFixture s;
  s.code(A, {0x90, 0x74, 0x02, 0x90, 0x90, 0x90}).code(A + 0x100, {0x90, 0x90}).start(A);
  bits(s, {0});
  s.pt.ovf();
  s.start(A + 0x100);
  stop_at(s, A + 0x101);
  EXPECT_EQ(s.expect_flow(at({0, 1, 0x100})).gap_codes(), (std::vector<Code>{Code::kTraceOverflow}));
}

// Only what begins with a packet of its own (PTW, MODE.TSX, ...) ends with a FUP. Found by tests/fuzz/pt_reference_fuzz.cpp:
// the flow went on behind an interrupt as if there had been none. libipt takes the TIP behind the TNT bits for its target.
TEST(Flow, InterruptWhoseTipIsMissing) {
  FlowFixture s;
  s.code(A, {0x90, 0x90, 0x74, 0x02, 0x90, 0x90, 0x90, 0x90}).start(A);
  s.pt.fup(A + 1);
  bits(s, {1});  // of the handler
  s.pt.tip(A + 6);
  stop_at(s, A + 7);
  const Decoded d = s.expect_flow(at({0, 6}));
  ASSERT_NO_FATAL_FAILURE(expect_out_of_place(d, 1));
  EXPECT_EQ(d.gaps[0].ip, A + 1);
  EXPECT_EQ(d.gaps[0].resume_ip, A + 6);
  EXPECT_EQ(d.ran[0].confidence, Confidence::kAmbiguous);
}

// Found by tests/fuzz/pt_reference_fuzz.cpp: where no address followed, nothing was said.
TEST(Flow, BitsWhileTracingIsOff) {
  FlowFixture s;
  s.code(A, {0x90, 0x90, 0x74, 0x02, 0x90, 0x90, 0x90, 0x90}).start(A);
  stop_at(s, A + 1);
  bits(s, {1});
  s.pt.psb_plus({});
  s.pt.tip_pge(A + 1, IpForm::kSext48);
  stop_at(s, A + 2);
  expect_out_of_place(s.expect_flow(at({0, 1})), 1);
}

// A CPU writes a TIP.PGD when tracing ends: it is missing, and with it what ran until then. Found by
// tests/fuzz/pt_reference_fuzz.cpp.
TEST(Flow, SyncPointWhileTracingIsOffWithoutATipPgd) {
  FlowFixture s;
  s.code(A, {0x90, 0xff, 0xe0}).code(A + 0x100, {0x90, 0x90, 0xff, 0xe0}).start(A);
  s.pt.tip(A + 0x100);
  s.pt.flush();
  const uint64_t psb = s.pt.offset();
  s.pt.psb_plus({});
  s.pt.tip_pge(A + 1, IpForm::kSext48);
  s.pt.tip(A + 0x100);
  stop_at(s, A + 0x101);
  const Decoded d = s.expect_flow(at({0, 1, 1, 0x100}));
  ASSERT_NO_FATAL_FAILURE(expect_out_of_place(d, 2));
  EXPECT_EQ(d.gaps[0].begin, psb);
}

TEST(Flow, SyncPointWhileTracingIsOnWithoutATipPge) {
  FlowFixture s;
  s.code(A, {0x90, 0x90, 0x90, 0x90}).start(A);
  stop_at(s, A + 1);
  s.pt.flush();
  const uint64_t psb = s.pt.offset();
  s.start(A + 2);
  stop_at(s, A + 3);
  const Decoded d = s.expect_flow(at({0, 2}));
  ASSERT_NO_FATAL_FAILURE(expect_out_of_place(d, 1));
  EXPECT_EQ(d.gaps[0].begin, psb);
}

// Packets of an interrupt may be among those that are missing behind the end. Found by tests/fuzz/pt_reference_fuzz.cpp:
// what ran up to where no bytes are known was certain.
TEST(Flow, EndOfTraceBeforeMissingText) {
  FlowFixture s;
  s.code(A, {0x90, 0xff, 0xe0}).code(A + 0x100, {0x90, 0x90}).start(A);
  s.pt.tip(A + 0x100);
  const Decoded d = s.expect_flow(at({0, 1, 0x100, 0x101}));
  EXPECT_EQ(d.gap_codes(), (std::vector<Code>{Code::kNoBytes}));
  for (size_t i = 0; i < d.ran.size(); ++i)
    EXPECT_EQ(d.ran[i].confidence, i < 2 ? Confidence::kCertain : Confidence::kAmbiguous) << i;
}

TEST(Flow, EndOfTraceBehindTheFupOfAnInterrupt) {
  FlowFixture s;
  s.code(A, {0x90, 0x74, 0x02, 0x90, 0x90, 0x90, 0xff, 0xe0}).start(A);
  bits(s, {1});
  s.pt.fup(A + 6);
  const Decoded d = s.expect_flow(at({0, 1, 5, 6}));
  EXPECT_TRUE(d.gaps.empty());
  for (size_t i = 0; i < d.ran.size(); ++i)
    EXPECT_EQ(d.ran[i].confidence, i < 3 ? Confidence::kCertain : Confidence::kAmbiguous) << i;
}

}  // namespace
}  // namespace asof::x86::test
