// Random programs on simulated arm64 CPUs. While text does not change, flow,
// OpenCSD and what ran agree; while other CPUs change it without notice,
// nothing that is called certain or proved is wrong.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/arch/arm64/high_confidence.h"
#include "tests/support/captures_of.h"

namespace asof::test {
namespace {

void run_changes(EtmClock clock, uint64_t first, uint64_t count, bool pauses, bool lost, Score& score,
                 uint64_t slow = 1, unsigned kprobes = 0, unsigned silent = 0, bool is_long = false) {
  for (uint64_t seed = first; seed < first + captures_of(count); ++seed) {
    SCOPED_TRACE(
        fmt::format("seed {} clock {} pauses {} lost {}", seed, static_cast<int>(clock), pauses, lost));
    const EtmSimulation run({.seed = seed,
                             .cpus = 1 + static_cast<unsigned>(seed % 2),
                             .ns = is_long        ? 40'000U
                                   : lost         ? 30'000U
                                   : kprobes != 0 ? 12'000U
                                                  : 2'500U,
                             .changes = (is_long ? 8 : 1) + static_cast<unsigned>(seed % 4),
                             .clock = clock,
                             .pauses = pauses,
                             .lost_records = lost,
                             .silent = silent,
                             .kprobes = kprobes,
                             .slow = slow});
    for (unsigned cpu = 0; cpu < 1 + seed % 2; ++cpu) {
      SCOPED_TRACE(fmt::format("cpu {}", cpu));
      const auto decoder = run.decoder();
      for (const Segment& s : run.segments(cpu)) {
        SCOPED_TRACE(fmt::format("segment {} at {}", s.index, s.begin));
        EtmDecoded d;
        decoder->decode(s, d);
        score.gaps += d.gaps.size();
        expect_high_confidence_ran(d.ran, run.truth(cpu, s), run.has_time(), score);
        // The time of a change that is proved to have come before is that of no instruction.
        for (const EtmRan& r : d.ran) EXPECT_TRUE(run.has_time() || r.time == kTimeMin) << show(r);
        if (testing::Test::HasFailure() && first_failure_ends()) return;
      }
    }
    ++score.captures;
  }
}

TEST(RandomArm64, FlowAndOpenCsdAndTruthAreOne) {
  uint64_t instructions = 0;
  for (uint64_t seed = 1; seed <= captures_of(700); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const EtmSimulation run({.seed = seed, .ns = 8'000, .pauses = seed % 3 == 0, .reference = seed % 2 == 0});
    const auto decoder = run.decoder();
    std::vector<Addr> all;
    for (const Segment& s : run.segments(0)) {
      SCOPED_TRACE(fmt::format("segment {} at {}", s.index, s.begin));
      EtmDecoded d;
      decoder->decode(s, d);
      expect_equal(d.ran, run.truth(0, s));
      if (HasFatalFailure()) return;
      for (const EtmRan& r : d.ran) {
        ASSERT_EQ(r.confidence, Confidence::kCertain) << show(r);
        all.push_back(r.ip);
      }
    }
    if (seed % 2 == 0) {
      const CsdDecode reference = run.reference(0);
      ASSERT_FALSE(reference.failed);
      ASSERT_EQ(all, reference.instructions);
    }
    instructions += all.size();
  }
  EXPECT_GT(instructions, captures_of(1'000'000));
}

TEST(RandomArm64, SegmentsAloneChunksAndCacheMakeNoDifference) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const EtmSimulation run({.seed = seed, .ns = 4'000, .changes = 4});
    const auto decoder = run.decoder();
    const auto chunked = run.decoder({.chunk_steps = 1});
    const auto uncached = run.decoder({.block_cache = false});
    for (const Segment& s : run.segments(0)) {
      EtmDecoded together, alone, pieces, anew;
      decoder->decode(s, together);
      run.decoder()->decode(s, alone);
      chunked->decode(s, pieces);
      uncached->decode(s, anew);
      for (const EtmDecoded* other : {&alone, &pieces, &anew}) {
        ASSERT_EQ(together.ran.size(), other->ran.size());
        ASSERT_EQ(together.gaps.size(), other->gaps.size());
        for (size_t i = 0; i < together.ran.size(); ++i) {
          ASSERT_EQ(together.ran[i].ip, other->ran[i].ip) << i;
          ASSERT_EQ(together.ran[i].word, other->ran[i].word) << i;
          ASSERT_EQ(together.ran[i].confidence, other->ran[i].confidence) << i;
        }
      }
    }
  }
}

TEST(RandomArm64, ChangesWithFineTime) {
  Score s;
  run_changes(EtmClock::kFine, 1, 3'000, false, false, s);
  EXPECT_EQ(s.captures, captures_of(3'000));
  EXPECT_GT(s.proved, captures_of(1'000));
  EXPECT_GT(s.high_confidence * 100, s.ran * 70) << s.high_confidence << " of " << s.ran;
}

TEST(RandomArm64, ChangesWithTimeAtSyncOnly) {
  Score s;
  run_changes(EtmClock::kCoarse, 1, 2'500, false, false, s);
  EXPECT_GT(s.proved, captures_of(1'000));
  EXPECT_GT(s.high_confidence * 100, s.ran * 60) << s.high_confidence << " of " << s.ran;
}

// Milliseconds from one context synchronisation event to the next, across many sync points of the trace.
TEST(RandomArm64, ChangesLongBeforeTheNextSynchronisation) {
  Score s;
  run_changes(EtmClock::kFine, 30'001, 1'500, false, false, s, 20'000);
  run_changes(EtmClock::kFine, 40'001, 500, true, false, s, 20'000);
  run_changes(EtmClock::kCoarse, 50'001, 500, false, false, s, 20'000);
  run_changes(EtmClock::kNone, 60'001, 300, false, false, s, 20'000);
  EXPECT_GT(s.proved, captures_of(1'000));
  EXPECT_GT(s.high_confidence * 100, s.ran * 60) << s.high_confidence << " of " << s.ran;
}

// Breakpoints, slots that no record shows, and visits to the callback that bound time.
TEST(RandomArm64, KprobesUnderStopMachine) {
  Score s;
  run_changes(EtmClock::kFine, 70'001, 700, false, false, s, 1, 3);
  run_changes(EtmClock::kCoarse, 80'001, 1'000, false, false, s, 1, 3);
  run_changes(EtmClock::kCoarse, 90'001, 500, true, false, s, 1, 2);
  run_changes(EtmClock::kNone, 100'001, 500, false, false, s, 1, 3);
  run_changes(EtmClock::kCoarse, 110'001, 300, false, true, s, 1, 4);
  EXPECT_GT(s.proved, captures_of(1'000));
  EXPECT_GT(s.high_confidence * 100, s.ran * 60) << s.high_confidence << " of " << s.ran;
}

// Some sites change and no record shows it. Their text is unsure: what runs there, and after it up to the
// next address in the trace, is followed and never called sure.
TEST(RandomArm64, ChangesThatNobodyRecords) {
  Score s;
  run_changes(EtmClock::kFine, 120'001, 1'000, false, false, s, 1, 0, 50);
  run_changes(EtmClock::kCoarse, 130'001, 700, true, false, s, 1, 0, 30);
  run_changes(EtmClock::kCoarse, 140'001, 300, false, false, s, 1, 3, 50);
  EXPECT_GT(s.proved, captures_of(300));
  EXPECT_GT(s.gaps, captures_of(300));
  EXPECT_GT(s.high_confidence * 100, s.ran * 30) << s.high_confidence << " of " << s.ran;
}

// Sites that change many times: a version that an unsure path rules out is not ruled out, and where paths
// over unsure text join, there may be others. Among these seeds are those that found the fault.
TEST(RandomArm64, LongRuns) {
  Score s;
  run_changes(EtmClock::kFine, 120'601, 200, false, false, s, 1, 0, 50, true);
  run_changes(EtmClock::kZero, 5'701, 50, false, false, s, 1, 0, 0, true);
  run_changes(EtmClock::kCoarse, 130'001, 100, true, false, s, 1, 0, 30, true);
  EXPECT_EQ(s.captures, captures_of(200) + captures_of(50) + captures_of(100));
  EXPECT_GT(s.high_confidence * 100, s.ran * 30) << s.high_confidence << " of " << s.ran;
}

TEST(RandomArm64, ChangesWithoutTimestamps) {
  Score s;
  run_changes(EtmClock::kNone, 1, 1'500, false, false, s);
  run_changes(EtmClock::kZero, 5'001, 1'000, false, false, s);
  EXPECT_GT(s.proved, captures_of(1'000));
  EXPECT_GT(s.high_confidence * 100, s.ran * 50) << s.high_confidence << " of " << s.ran;
}

TEST(RandomArm64, ChangesWithTimestampsOfAnotherCounter) {
  Score s;
  run_changes(EtmClock::kForeign, 1, 1'000, false, false, s);
  EXPECT_GT(s.high_confidence * 100, s.ran * 50) << s.high_confidence << " of " << s.ran;
}

TEST(RandomArm64, TraceThatStopsAndOverflowsAndRecordsLost) {
  Score s;
  run_changes(EtmClock::kFine, 10'001, 1'000, true, true, s);
  run_changes(EtmClock::kCoarse, 20'001, 1'000, true, true, s);
  EXPECT_GT(s.high_confidence * 100, s.ran * 50) << s.high_confidence << " of " << s.ran;
}

}  // namespace
}  // namespace asof::test
