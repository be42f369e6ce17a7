// Text that is not there all the time: programs that are loaded and unloaded, and bytes that are unknown at some
// times.
#include "tests/arch/x86/live_text_fixture.h"

namespace asof::x86::test {
namespace {

// The bytes of one version are unknown. That the known one fits proves nothing.
TEST(LiveText, UnknownVersionIsACandidateToo) {
  FlowFixture s;
  s.with_clock();
  s.code(kSite, {0x90, 0x90, 0x90}, kTimeMin, 999).unknown(kSite, 3, 1000, kTimeMax);
  s.start(kSite, 100);
  stop_at(s, kSite + 2);
  s.pt.tsc(5000);
  const Decoded d = s.decode_all_ways();
  EXPECT_EQ(hex(d.ips()), hex({kSite, kSite + 1}));
  for (const Ran& r : d.ran) EXPECT_EQ(r.confidence, Confidence::kAmbiguous);
}

// No layer covers the time before a program was loaded: something that no record shows may have run there.
// The flow goes through the program, but it is not certain.
TEST(LiveText, TimeBeforeTheFirstLifetimeIsUnknown) {
  FlowFixture s;
  s.with_clock();
  s.code(kSite, {0x90, 0x90, 0x90}, 1000);
  s.start(kSite, 100);
  stop_at(s, kSite + 2);
  s.pt.tsc(5000);
  expect_all(s.expect_flow({kSite, kSite + 1}), Confidence::kAmbiguous);
}

TEST(LiveText, NoBytesAtThisTimeThoughAtOthers) {
  FlowFixture s;
  s.with_clock();
  s.code(kSite, {0x90, 0x90, 0x90}, kTimeMin, 999).code(kOn, {0x90, 0x90});
  s.start(kSite, 2000);
  s.pt.tip(kOn);
  stop_at(s, kOn + 1);
  s.pt.tsc(2100);
  const Decoded d = s.expect_flow({kOn});
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_EQ(d.gaps[0].code, Code::kNoBytes);
}

TEST(LiveText, ReusedProgramAddress) {
  FlowFixture s;
  s.with_clock();
  const Addr prog = 0xffffffffc0001000;
  // The first program falls through its branch, the second has a different length and shape.
  s.code(prog, {0x90, 0x74, 0x00, 0x90, 0x90}, 1000, 3000, true, kRankEpoch);
  s.code(prog, {0x48, 0x89, 0xc8, 0x75, 0x01, 0x90, 0x90, 0x90}, 4000, kTimeMax, false, kRankEpoch);
  s.start(prog, 2000);
  s.pt.tnt(false);
  stop_at(s, prog + 4);
  s.pt.tsc(2100);
  s.start(prog, 5000);
  s.pt.tnt(true);
  stop_at(s, prog + 7);
  s.pt.tsc(5100);
  const Decoded d = s.expect({prog, prog + 1, prog + 3, prog, prog + 3, prog + 6});
  expect_all(d, Confidence::kCertain);
  EXPECT_EQ(d.ran[0].length, 1);
  EXPECT_EQ(d.ran[3].length, 3);
}

// After the unload record the old program may run a little longer, until another is announced there.
TEST(LiveText, UnloadedProgramStillRuns) {
  FlowFixture s;
  s.with_clock();
  const Addr prog = 0xffffffffc0001000;
  s.code(prog, {0x90, 0x74, 0x00, 0x90, 0x90}, 1000, 3000, true, kRankEpoch);
  s.start(prog, 3500);
  s.pt.tnt(false);
  stop_at(s, prog + 4);
  s.pt.tsc(3600);
  const Decoded d = s.decode_all_ways();
  EXPECT_EQ(hex(d.ips()), hex({prog, prog + 1, prog + 3}));
  EXPECT_TRUE(d.gaps.empty());
}

// Both lifetimes are possible, the trace decides.
TEST(LiveText, ProgramsWithinATimingGap) {
  FlowFixture s;
  s.with_clock();
  const Addr prog = 0xffffffffc0001000;
  s.code(prog, {0x90, 0x74, 0x00, 0x90, 0x90}, 1000, 3000, false, kRankEpoch);
  s.code(prog, {0x48, 0x89, 0xc8, 0xff, 0xe0}, 3001, kTimeMax, false, kRankEpoch);
  s.code(kOn, {0x90, 0x90});
  s.start(prog, 2000);
  s.pt.tip(kOn);
  stop_at(s, kOn + 1);
  s.pt.tsc(5000);
  const Decoded d = s.expect_flow({prog, prog + 3, kOn});
  EXPECT_EQ(d.ran[0].confidence, Confidence::kProved);
}

}  // namespace
}  // namespace asof::x86::test
