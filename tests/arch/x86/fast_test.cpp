// The fast walks and the careful walk give the same, entry by entry: blocks, times, confidence, flags, events
// and gaps. Without its caches of code a decoder walks with care alone. Nor does it matter what a decoder has
// decoded before.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/arch/x86/simulation.h"
#include "tests/support/story.h"

namespace asof::x86::test {
namespace {

using asof::test::Shares;

void compare(const Settings& settings, Shares& shares) {
  SCOPED_TRACE(fmt::format("seed {}", settings.seed));
  compare_walks(Simulation(settings), shares);
}

TEST(FastX86, IsTheCarefulWalk) {
  Shares shares;
  for (uint64_t seed = 1; seed <= 600 && !HasFailure(); ++seed)
    compare({.seed = seed,
             .ticks = 8'000,
             .coarse_time = seed % 3 == 0,
             .silent_mtc = seed % 6 == 0,
             .overflows = seed % 4 == 0},
            shares);
  EXPECT_GT(shares.in_runs * 100, shares.instructions * 60)
      << shares.in_runs << " of " << shares.instructions;
}

TEST(FastX86, IsTheCarefulWalkWhereTextChanges) {
  Shares shares;
  for (uint64_t seed = 1'001; seed <= 1'300 && !HasFailure(); ++seed) {
    compare({.seed = seed,
             .cpus = 2,
             .ticks = 10'000,
             .pokes = 1 + seed % 4,
             .coarse_time = seed % 3 == 0,
             .silent_mtc = seed % 6 == 0,
             .recording = {.loses_records = seed % 5 == 0},
             .programs = seed % 4 == 0},
            shares);
  }
  EXPECT_GT(shares.in_runs * 100, shares.instructions * 30)
      << shares.in_runs << " of " << shares.instructions;
}

// Pieces of the code are not known: the flow is lost and found again all the time.
TEST(FastX86, IsTheCarefulWalkWhereTextIsMissing) {
  Shares shares;
  for (uint64_t seed = 2'001; seed <= 2'800 && !HasFailure(); ++seed) {
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
  EXPECT_GT(shares.gaps, 20'000U);
}

// Bytes of the trace that were changed, taken out or put in: the same gaps at the same places.
TEST(FastX86, IsTheCarefulWalkInDamagedTrace) {
  Shares shares;
  for (uint64_t seed = 1; seed <= 600 && !HasFailure(); ++seed) {
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
  EXPECT_GT(shares.gaps, 2'000U);
}

}  // namespace
}  // namespace asof::x86::test
