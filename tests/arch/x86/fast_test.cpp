// The fast walks and the careful walk give the same result, entry by entry: blocks, times, confidence, flags,
// events and gaps. Without its caches of code a decoder only uses the careful walk. Nor does it matter what a
// decoder has decoded before.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/arch/x86/simulation.h"
#include "tests/support/captures_of.h"
#include "tests/support/transcript.h"

namespace asof::x86::test {
namespace {

using asof::test::captures_of;
using asof::test::Shares;

void compare(const Settings& settings, Shares& shares) {
  SCOPED_TRACE(fmt::format("seed {}", settings.seed));
  compare_walks(Simulation(settings), shares);
}

TEST(FastX86, IsTheCarefulWalk) {
  Shares shares;
  for (uint64_t seed = 1; seed <= captures_of(600) && !HasFailure(); ++seed)
    compare({.seed = seed,
             .ticks = 8'000,
             .coarse_time = seed % 3 == 0,
             .silent_mtc = seed % 6 == 0,
             .overflows = seed % 4 == 0},
            shares);
  EXPECT_GT(shares.in_runs * 100, shares.instructions * 60)
      << shares.in_runs << " of " << shares.instructions;
  EXPECT_EQ(shares.in_sums, shares.in_runs);
}

TEST(FastX86, IsTheCarefulWalkWhereTextChanges) {
  Shares shares;
  for (uint64_t seed = 1'001; seed <= 1'000 + captures_of(300) && !HasFailure(); ++seed) {
    compare({.seed = seed,
             .cpus = 2,
             .ticks = 10'000,
             .pokes = 1 + seed % 4,
             .coarse_time = seed % 3 == 0,
             .silent_mtc = seed % 6 == 0,
             .recording = {.loses_records = seed % 5 == 0},
             .programs = seed % 4 == 0,
             .mismatch = static_cast<asof::test::TracerConfig::Mismatch>(seed % 3)},
            shares);
  }
  EXPECT_GT(shares.in_runs * 100, shares.instructions * 30)
      << shares.in_runs << " of " << shares.instructions;
}

// Parts of the code are unknown: the flow is lost and resumed all the time.
TEST(FastX86, IsTheCarefulWalkWhereTextIsMissing) {
  Shares shares;
  for (uint64_t seed = 2'001; seed <= 2'000 + captures_of(800) && !HasFailure(); ++seed) {
    compare({.seed = seed,
             .ticks = 8'000,
             .pokes = seed % 4 == 0 ? 2U : 0U,
             .coarse_time = seed % 3 == 0,
             .silent_mtc = seed % 6 == 0,
             .overflows = seed % 5 == 0,
             .recording = {.holes = 1 + static_cast<unsigned>(seed % 12)},
             .switches = seed % 2 == 0,
             .anchors = seed % 8 == 0},
            shares);
  }
  EXPECT_GT(shares.gaps, captures_of(20'000));
}

// Bytes of the trace that were changed, removed or inserted: the same gaps at the same positions.
TEST(FastX86, IsTheCarefulWalkInDamagedTrace) {
  Shares shares;
  for (uint64_t seed = 1; seed <= captures_of(600) && !HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Simulation run({.seed = seed % 50,
                    .ticks = 10'000,
                    .pokes = seed % 3,
                    .recording = {.holes = static_cast<unsigned>(seed % 4)}});
    asof::test::SimRandom random(seed);
    Bytes trace = run.trace(0);
    for (uint64_t n = random.between(1, 6); n > 0 && trace.size() > 100; --n) {
      const auto at = trace.begin() + static_cast<std::ptrdiff_t>(random.below(trace.size() - 20));
      switch (random.below(3)) {
        case 0:
          *at ^= static_cast<uint8_t>(1U << random.below(8));
          break;
        case 1:
          trace.erase(at, at + static_cast<std::ptrdiff_t>(random.below(20)));
          break;
        default:
          trace.insert(at, static_cast<uint8_t>(random.next()));
      }
    }
    run.replace_trace(0, std::move(trace));
    compare_walks(run, shares);
  }
  EXPECT_GT(shares.gaps, captures_of(2'000));
}

// A loop of one branch, JE to itself, in a trace with a clock: an MTC every 100 ns.
struct TimedLoop : FlowFixture {
  TimedLoop() {
    with_clock();
    config.tsc_ctc_n = 100;
    config.tsc_ctc_d = 1;
    code(A, {0x74, 0xfe});
  }
  void turns(int n) {
    for (int i = 0; i < n; ++i) bits(*this, {1, 1, 1, 1, 1, 1});
  }
};

// MTCs give no time before the first TMA, and none after a TSC without one.
TEST(FastX86, TimeOfMtcsWithTmaAndWithout) {
  TimedLoop s;
  s.start(A, 1'000);
  s.turns(20);
  s.pt.mtc(11);
  s.turns(20);
  s.pt.tsc(1'520);
  s.pt.tma(15, 20);
  s.turns(20);
  s.pt.mtc(16);
  s.turns(20);
  s.pt.tsc(1'750);
  s.turns(20);
  s.pt.mtc(18);
  s.turns(20);
  stop_at(s, A);
  const Decoded d = s.expect_flow(std::vector<Addr>(6 * 20 * 6, A));
  const std::array<Time, 6> want = {1'000, 1'000, 1'520, 1'600, 1'750, 1'750};
  for (size_t i = 0; i < d.ran.size(); ++i) ASSERT_EQ(d.ran[i].time, want.at(i / (6 * 20))) << i;
}

// What the first TNT packet after an MTC covers may have run before the MTC: a change of text between the two
// times is not known to be complete. After the second packet it is.
TEST(FastX86, WhatTheFirstPacketOfANewTimeTellsMayBeOlder) {
  constexpr Addr kSite = A + 0x100;
  const Bytes nop = {0x0f, 0x1f, 0x44, 0, 0}, other = {0x66, 0x0f, 0x1f, 0x40, 0};
  for (const int packets : {0, 1, 9}) {  // between the MTC and the packet of the path to the site
    SCOPED_TRACE(packets);
    TimedLoop s;
    s.code(A + 2, {0x75, 0xfc, 0x0f, 0x84, 0xf6, 0, 0, 0});  // JNE to the loop; JE kSite
    s.code(kSite, {0x0f, 0x1f, 0x44, 0, 0, 0x74, 0}).poke(kSite, nop, other, 1'050);
    s.code(kSite + 7, {0x90});
    PsbPlus g;
    g.ip = A;
    g.tsc = 1'000;
    g.tma = PsbPlus::Tma{10, 0};
    s.pt.psb_plus(g);
    s.turns(20);
    s.pt.mtc(11);
    s.turns(packets);
    bits(s, {1, 0, 0, 1, 0});  // the loop, two not taken, to the site, its branch
    stop_at(s, kSite + 7);
    const Decoded d = s.decode_all_ways();
    ASSERT_EQ(d.ran.back().ip, kSite + 5);
    const Ran& site = d.ran[d.ran.size() - 2];
    EXPECT_EQ(site.ip, kSite);
    EXPECT_EQ(site.time, 1'100);
    EXPECT_EQ(site.confidence, packets == 0 ? Confidence::kEquivalent : Confidence::kCertain);
  }
}

}  // namespace
}  // namespace asof::x86::test
