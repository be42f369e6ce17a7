// Random programs on the simulated machine. While text does not change, flow, libipt and what really ran
// agree; while other CPUs change it, nothing that is called certain or proved is wrong.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/arch/x86/high_confidence.h"

namespace asof::x86::test {
namespace {

void expect_equal(const Decoded& d, const std::vector<Executed>& truth) {
  const size_t n = std::min(d.ran.size(), truth.size());
  for (size_t i = 0; i < n; ++i) {
    ASSERT_TRUE(same(d.ran[i], truth[i]))
        << "instruction " << i << " of " << truth.size() << ": " << show(d.ran[i]) << ", really "
        << fmt::format("{:#x}", truth[i].ip) << (d.gaps.empty() ? "" : "; gap: " + d.gaps[0].reason);
  }
  ASSERT_EQ(d.ran.size(), truth.size());
}

TEST(RandomPrograms, FlowAndLibiptAndTruthAreOne) {
  uint64_t instructions = 0;
  for (uint64_t seed = 1; seed <= captures_of(1200); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Simulation run({.seed = seed, .ticks = 6'000});
    const Decoded d = run.decode(0);
    expect_equal(d, run.truth(0));
    if (HasFatalFailure()) return;
    DecodeOptions o;
    o.reference_engine = true;
    const Decoded r = run.decode(0, o);
    ASSERT_EQ(hex(d.ips()), hex(r.ips()));
    ASSERT_TRUE(d.gaps.empty()) << d.gaps[0].reason;
    for (const Ran& i : d.ran) ASSERT_EQ(i.confidence, Confidence::kCertain);
    instructions += d.ran.size();
  }
  EXPECT_GT(instructions, captures_of(400'000));
}

// Instructions by when they really ran: before their step's time (late), even before the time preceding that,
// after the next time.
struct Timing {
  uint64_t instructions = 0, late = 0, before_last = 0, after_next = 0;
};

void count_times(const Decoded& d, const std::vector<Executed>& truth, Timing& t) {
  constexpr Time kRounding = 2;
  std::vector<Time> next(d.ran.size(), kTimeMax), last(d.ran.size(), kTimeMin);
  for (size_t i = d.ran.size(); i-- > 1;)
    next[i - 1] = d.ran[i].time != d.ran[i - 1].time ? d.ran[i].time : next[i];
  for (size_t i = 1; i < d.ran.size(); ++i)
    last[i] = d.ran[i].time != d.ran[i - 1].time ? d.ran[i - 1].time : last[i - 1];
  for (size_t i = 0; i < d.ran.size(); ++i) {
    ++t.instructions;
    t.late += truth[i].time + kRounding < d.ran[i].time;
    t.before_last += truth[i].time + kRounding < last[i];
    t.after_next += truth[i].time > saturating_add(next[i], kRounding);
  }
}

TEST(RandomPrograms, TimeOfAStepIsThatOfATimingPacketBesideIt) {
  std::array<Timing, 2> timing;  // without CYC, with CYC
  for (uint64_t seed = 1; seed <= captures_of(300); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Simulation run({.seed = seed, .ticks = 6'000});
    const Decoded d = run.decode(0);
    expect_equal(d, run.truth(0));
    if (HasFatalFailure()) return;
    count_times(d, run.truth(0), timing.at(run.has_cyc() ? 1 : 0));
  }
  const auto& [plain, cyc] = timing;
  // Less than on average: of a few captures, most can have CYC, or few.
  EXPECT_GT(plain.instructions, captures_of(40'000));
  EXPECT_LT(plain.late * 50, plain.instructions);
  EXPECT_EQ(plain.before_last, 0U);
  EXPECT_EQ(plain.after_next, 0U);
  // A CYC packet precedes the packet that it dates, which covers code that ran earlier.
  EXPECT_GT(cyc.instructions, captures_of(50'000));
  EXPECT_LT(cyc.before_last * 100, cyc.instructions);
  EXPECT_EQ(cyc.after_next, 0U);
}

TEST(RandomPrograms, SegmentsAloneChunksAndCacheMakeNoDifference) {
  for (uint64_t seed = 1; seed <= captures_of(150); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Simulation run({.seed = seed, .cpus = 2, .ticks = 15'000, .pokes = 4});
    const Decoded d = run.decode(0);
    const Decoded alone = run.decode_alone(0);
    DecodeOptions o;
    o.chunk_steps = 1;
    const Decoded chunked = run.decode(0, o);
    DecodeOptions uncached;
    uncached.block_cache = false;
    const Decoded anew = run.decode(0, uncached);
    for (const Decoded* other : {&alone, &chunked, &anew}) {
      ASSERT_EQ(d.per_segment, other->per_segment);
      ASSERT_EQ(d.gap_codes(), other->gap_codes());
      for (size_t i = 0; i < d.ran.size(); ++i) {
        ASSERT_EQ(d.ran[i].bytes, other->ran[i].bytes) << i;
        ASSERT_EQ(d.ran[i].confidence, other->ran[i].confidence) << i;
        ASSERT_EQ(d.ran[i].flags, other->ran[i].flags) << i;
      }
    }
  }
}

void run_with_pokes(bool coarse, uint64_t seeds, Score& score) {
  for (uint64_t seed = 1; seed <= captures_of(seeds); ++seed) {
    SCOPED_TRACE(fmt::format("seed {} coarse {}", seed, coarse));
    const bool overflows = seed % 4 == 0;
    Simulation run({.seed = seed,
                    .cpus = 2,
                    .ticks = 24'000,
                    .pokes = 6,
                    .coarse_time = coarse,
                    .silent_mtc = coarse && seed % 2 == 0,
                    .overflows = overflows});
    for (unsigned cpu = 0; cpu < 2; ++cpu) {
      SCOPED_TRACE(fmt::format("cpu {}", cpu));
      const Decoded d = run.decode(cpu);
      for (const auto& g : d.gaps) EXPECT_EQ(g.code, Code::kTraceOverflow) << g.reason;
      expect_high_confidence_ran(d, run.truth(cpu), coarse, score);
      if (testing::Test::HasFailure()) return;
    }
    score.hits += run.hits();
  }
}

// A tick every 800 TSC ticks, pokes some thousand apart: nearly everywhere time or the trace determines the
// version.
TEST(RandomPrograms, PokesWithFineTime) {
  Score s;
  run_with_pokes(false, 250, s);
  EXPECT_GT(s.high_confidence * 100, s.instructions * 90);
  EXPECT_GT(s.hits, captures_of(100));
  EXPECT_GT(s.instructions, captures_of(1'000'000));
}

// Time at sync points only: what time and trace cannot decide is reported as ambiguous or equivalent.
TEST(RandomPrograms, PokesWithTimeAtSyncPointsOnly) {
  Score s;
  run_with_pokes(true, 250, s);
  EXPECT_GT(s.proved, captures_of(1000));
  EXPECT_GT(s.instructions, captures_of(1'000'000));
  EXPECT_GT(s.high_confidence * 2, s.instructions);
}

// Damaged traces: decoding terminates, every byte is in a segment or a gap, gaps are inside the stream, and
// the instructions returned are in the text.
TEST(RandomPrograms, DamagedTraces) {
  SimRandom random(5);
  uint64_t gaps = 0;
  for (uint64_t seed = 1; seed <= captures_of(60); ++seed) {
    Simulation run({.seed = seed, .cpus = 2, .ticks = 12'000, .pokes = 3, .overflows = true});
    for (int n = 0; n < 40; ++n) {
      SCOPED_TRACE(fmt::format("seed {} damage {}", seed, n));
      Bytes trace = run.trace(0);
      for (uint64_t i = random.between(1, 8); i != 0; --i) {
        const size_t at = random.below(trace.size());
        switch (random.below(4)) {
          case 0:
            trace[at] ^= static_cast<uint8_t>(1U << random.below(8));
            break;
          case 1:
            trace[at] = static_cast<uint8_t>(random.next());
            break;
          case 2:
            trace.erase(
                trace.begin() + static_cast<std::ptrdiff_t>(at),
                trace.begin() + static_cast<std::ptrdiff_t>(std::min(trace.size(), at + random.below(20))));
            break;
          default:
            trace.insert(trace.begin() + static_cast<std::ptrdiff_t>(at),
                         static_cast<uint8_t>(random.next()));
        }
        if (trace.empty()) trace.push_back(0);
      }
      std::vector<Segment> segments;
      const Decoded d = run.decode_bytes(0, trace, segments);
      // Timing packets before the first sync point are not a loss.
      const uint64_t front = segments.empty()     ? trace.size()
                             : segments[0].before ? segments[0].before->begin
                                                  : segments[0].begin;
      ASSERT_LE(front, 64U);
      uint64_t covered = front;
      for (const Segment& s : segments)
        covered += s.end - s.begin + (s.before ? s.before->end - s.before->begin : 0);
      ASSERT_EQ(covered, trace.size());
      for (const auto& g : d.gaps) {
        ASSERT_LE(g.begin, g.end);
        ASSERT_LE(g.end, trace.size());
        ASSERT_FALSE(g.reason.empty());
        ASSERT_LE(g.time.lo, g.time.hi);
      }
      for (const auto& e : d.events) ASSERT_LT(e.offset, trace.size());
      gaps += d.gaps.size();
    }
  }
  EXPECT_GT(gaps, captures_of(2000));
}

}  // namespace
}  // namespace asof::x86::test
