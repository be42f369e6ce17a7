// The fast walk and the careful walk give the same result, entry by entry: blocks, times, confidence, flags,
// events and gaps. Without its caches of code a decoder only uses the careful walk. Nor does it matter what a
// decoder has decoded before.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/arch/arm64/random_simulation.h"
#include "tests/support/captures_of.h"
#include "tests/support/transcript.h"

namespace asof::test {
namespace {

void compare(const EtmSettings& settings, Shares& shares) {
  SCOPED_TRACE(fmt::format("seed {} clock {}", settings.seed, static_cast<int>(settings.clock)));
  compare_walks(EtmSimulation(settings), shares);
}

TEST(FastArm64, IsTheCarefulWalk) {
  Shares shares;
  constexpr EtmClock kClocks[] = {EtmClock::kFine, EtmClock::kCoarse, EtmClock::kNone, EtmClock::kZero,
                                  EtmClock::kForeign};
  for (uint64_t seed = 1; seed <= captures_of(1'000) && !HasFailure(); ++seed) {
    compare({.seed = seed, .ns = 12'000, .clock = kClocks[seed % 5], .pauses = seed % 3 == 0}, shares);
  }
  EXPECT_GT(shares.in_runs * 100, shares.instructions * 60)
      << shares.in_runs << " of " << shares.instructions;
}

TEST(FastArm64, IsTheCarefulWalkWhereTextChanges) {
  Shares shares;
  for (uint64_t seed = 2'001; seed <= 2'000 + captures_of(600) && !HasFailure(); ++seed) {
    compare({.seed = seed,
             .ns = 8'000,
             .changes = 1 + static_cast<unsigned>(seed % 4),
             .clock = seed % 2 == 0 ? EtmClock::kFine : EtmClock::kCoarse,
             .pauses = seed % 5 == 0,
             .lost_records = seed % 7 == 0,
             .silent = seed % 4 == 1 ? 40U : 0U,
             .kprobes = seed % 3 == 0 ? 2U : 0U},
            shares);
  }
  EXPECT_GT(shares.in_runs * 100, shares.instructions * 30)
      << shares.in_runs << " of " << shares.instructions;
}

// Bytes of the trace that were changed, removed or duplicated: the same gaps at the same positions.
TEST(FastArm64, IsTheCarefulWalkInDamagedTrace) {
  uint64_t gaps = 0;
  for (uint64_t seed = 1; seed <= captures_of(1'000); ++seed) {
    SCOPED_TRACE(seed);
    const EtmSimulation run({.seed = seed % 40, .ns = 8'000, .changes = static_cast<unsigned>(seed % 3)});
    SimRandom random(seed);
    const auto whole = run.cpu(0).unit().writer().bytes();
    std::vector<uint8_t> trace(whole.begin(), whole.end());
    for (uint64_t n = random.between(1, 6); n > 0 && trace.size() > 100; --n) {
      const size_t at = random.below(trace.size() - 20);
      switch (random.below(3)) {
        case 0:
          trace[at] ^= static_cast<uint8_t>(1U << random.below(8));
          break;
        case 1:
          trace.erase(trace.begin() + static_cast<ptrdiff_t>(at),
                      trace.begin() + static_cast<ptrdiff_t>(at + random.below(20)));
          break;
        default:
          trace[at] = static_cast<uint8_t>(0xc0 + random.below(0x40));
      }
    }
    arm64::Config config;
    config.sources.push_back(run.source(0));
    config.sources[0].idr8 = 0;
    config.time = TimeConversion{};
    config.unrecorded_changes = seed % 4 == 0;
    Stream stream;
    StreamPiece piece;
    piece.bytes = trace;
    stream.pieces = {piece};
    const auto arch = arm64::make_arch(config);
    const auto fast = arch->decoder(std::span(&stream, 1), run.text(), {});
    const auto careful = arch->decoder(std::span(&stream, 1), run.text(), {.block_cache = false});
    for (const Segment& s : arch->split(stream, 0)) {
      Transcript a, b, c;
      fast->decode(s, a);
      careful->decode(s, b);
      arch->decoder(std::span(&stream, 1), run.text(), {})->decode(s, c);
      expect_same(a, b);
      expect_same(c, b);
      if (HasFailure()) return;
      gaps += a.gaps;
    }
  }
  EXPECT_GT(gaps, captures_of(300));
}

// Code of a process: which process it is must be determined, once or again after every pause.
TEST(FastArm64, IsTheCarefulWalkInAProcess) {
  Shares shares;
  constexpr EtmClock kClocks[] = {EtmClock::kFine, EtmClock::kCoarse, EtmClock::kNone};
  for (uint64_t seed = 7'001; seed <= 7'000 + captures_of(300) && !HasFailure(); ++seed) {
    compare({.seed = seed,
             .ns = 8'000,
             .clock = kClocks[seed % 3],
             .pauses = seed % 2 == 0,
             .holes = static_cast<unsigned>(seed % 5),
             .processes = 1 + static_cast<unsigned>(seed % 2)},
            shares);
  }
  EXPECT_GT(shares.in_runs * 100, shares.instructions * 30)
      << shares.in_runs << " of " << shares.instructions;
}

// Parts of the code are unknown: the flow is lost and resumed all the time.
TEST(FastArm64, IsTheCarefulWalkWhereTextIsMissing) {
  Shares shares;
  constexpr EtmClock kClocks[] = {EtmClock::kFine, EtmClock::kCoarse, EtmClock::kNone};
  for (uint64_t seed = 5'001; seed <= 5'000 + captures_of(800) && !HasFailure(); ++seed) {
    compare({.seed = seed,
             .ns = 8'000,
             .changes = static_cast<unsigned>(seed % 3),
             .clock = kClocks[seed % 3],
             .pauses = seed % 5 == 0,
             .holes = 1 + static_cast<unsigned>(seed % 12)},
            shares);
  }
  EXPECT_GT(shares.gaps, captures_of(10'000));
}

}  // namespace
}  // namespace asof::test
