// Changes of text whose side of the visit the timing does not show: the trace decides between the versions, and
// the confidence says how.
#include "tests/arch/x86/live_text_fixture.h"

namespace asof::x86::test {
namespace {

TEST(LiveText, ClockErrorWidensTheWindow) {
  KeyFixture s;
  s.options.clock_error = 50;
  s.poke_on(1000);
  s.visit_off(970);  // within the error of the poke: two candidates, and the trace decides
  s.time(980);
  const Decoded d = s.expect_flow(kOffPath);
  EXPECT_EQ(d.ran[0].confidence, Confidence::kProved);
}

TEST(LiveText, PokeInsideATimingGapIsProvedByTheTrace) {
  for (const bool on : {false, true}) {
    SCOPED_TRACE(on);
    KeyFixture s;
    s.poke_on(1000);
    // Time is known at 100 and at 5000 only.
    if (on)
      s.visit_on(100);
    else
      s.visit_off(100);
    s.time(5000);
    const Decoded d = s.expect_flow(on ? kOnPath : kOffPath);
    EXPECT_EQ(d.ran[0].confidence, Confidence::kProved);
    EXPECT_EQ(d.ran[0].bytes[0], on ? 0xe9 : 0x0f);
  }
}

// Many visits between two timestamps: first of the old version, then of the new one.
TEST(LiveText, TheChangeIsFoundAmongManyVisits) {
  for (int change = 0; change <= 20; ++change) {
    SCOPED_TRACE(change);
    KeyFixture s;
    s.code(kEntry + 2, {0xff, 0xe0});
    s.poke_on(1000);
    s.start(kSite, 100);
    std::vector<Addr> want;
    for (int i = 0; i < 20; ++i) {
      if (i < change) {
        s.pt.tnt(false);
        s.pt.tip(kEntry);
        want.insert(want.end(), kOffPath.begin(), kOffPath.end());
      } else {
        s.pt.tip(kEntry);
        want.insert(want.end(), kOnPath.begin(), kOnPath.end());
      }
      s.pt.tip(kSite);
      want.insert(want.end(), {kEntry + 1, kEntry + 2});
    }
    stop_at(s, kSite);
    s.time(5000);
    const Decoded d = s.expect_flow(want);
    EXPECT_TRUE(d.gaps.empty());
    const std::vector<Ran> visits = at_site(d);
    EXPECT_EQ(visits.size(), 20U);
    for (const Ran& r : visits)
      EXPECT_TRUE(r.confidence == Confidence::kProved || r.confidence == Confidence::kCertain);
  }
}

// NOP5 against a jump to the next instruction: both paths are the same.
TEST(LiveText, EquivalentVersions) {
  FlowFixture s;
  s.with_clock();
  s.code(kSite, kNop5).code(kSite + 5, {0x90, 0x74, 0x00, 0x90, 0x74, 0x00, 0x90, 0x90});
  s.poke(kSite, kNop5, {0xe9, 0, 0, 0, 0}, 1000);
  s.start(kSite, 100);
  s.pt.tnt(true);
  s.pt.tnt(false);
  stop_at(s, kSite + 12);
  s.pt.tsc(5000);
  const Decoded d = s.expect({kSite, kSite + 5, kSite + 6, kSite + 8, kSite + 9, kSite + 11});
  EXPECT_EQ(d.ran[0].confidence, Confidence::kEquivalent);
  EXPECT_EQ(d.ran.back().confidence, Confidence::kCertain);
  EXPECT_TRUE(d.gaps.empty());
}

TEST(LiveText, AmbiguousWhereTheTraceEndsTooSoon) {
  KeyFixture s;
  // Two versions that both need a bit, and the trace ends after it.
  const Addr site = A + 0x400;
  s.code(site, {0x74, 0x00}).code(site + 2, {0x90, 0x74, 0x00}).code(A + 0x410, {0x90, 0x74, 0x00});
  s.poke(site, {0x74, 0x00}, {0x74, 0x0e}, 1000);
  s.start(site, 100);
  s.pt.tnt(true);
  s.pt.tsc(5000);
  const Decoded d = s.decode_all_ways();
  ASSERT_FALSE(d.ran.empty());
  EXPECT_EQ(d.ran[0].ip, site);
  EXPECT_EQ(d.ran[0].confidence, Confidence::kAmbiguous);
}

TEST(LiveText, NoVersionFits) {
  KeyFixture s;
  s.poke_on(1000);
  s.start(kSite, 100);
  s.pt.tnt(true);          // on: the JMP RAX needs an address
  s.pt.fup(kSite + 0x40);  // off: so does this one, and the FUP is at no address on the path
  s.pt.tip(kEntry);
  stop_at(s, kEntry + 1);
  s.time(5000);
  const Decoded d = s.decode_all_ways();
  ASSERT_GE(d.gaps.size(), 1U);
  EXPECT_EQ(family_of(d.gaps[0].code), CodeFamily::kFlow);
  const std::vector<Ran> visits = at_site(d);
  ASSERT_EQ(visits.size(), 1U);
  EXPECT_EQ(visits[0].confidence, Confidence::kContradiction);
  EXPECT_EQ(d.ran.back().ip, kEntry);
}

// Without any time all versions are candidates, and only the trace decides; what it cannot decide is not
// certain.
TEST(LiveText, TraceWithoutTime) {
  for (const bool on : {false, true}) {
    KeyFixture s;
    s.config.time.reset();
    s.poke_on(1000);
    s.start(kSite);
    if (!on) s.pt.tnt(false);
    s.pt.tip(kEntry);
    stop_at(s, kEntry + 1);
    const Decoded d = s.expect_flow(on ? kOnPath : kOffPath);
    EXPECT_EQ(d.ran[0].confidence, Confidence::kProved);
  }
}

// The stream's own bounds (AUX records) replace time in the trace.
TEST(LiveText, BoundsOfTheStreamServeWhereTheTraceHasNoTime) {
  KeyFixture s;
  s.config.time.reset();
  s.poke_on(1000);
  s.stream.bounds = {2000, 3000};
  s.start(kSite);
  s.pt.tip(kEntry);
  stop_at(s, kEntry + 1);
  const Decoded d = s.decode_all_ways();
  EXPECT_EQ(hex(d.ips()), hex(kOnPath));
  expect_all(d, Confidence::kCertain);
}

}  // namespace
}  // namespace asof::x86::test
