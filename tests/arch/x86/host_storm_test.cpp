// Random captures with cycle counts (CYC) of CPUs that sleep, in which no cycles are counted, and resume at
// other rates, while text changes: no time bound may exclude the version that ran. ASOF_TEST_CAPTURES=n
// makes n times as many, and continues after a failure.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/arch/x86/high_confidence.h"

namespace asof::x86::test {
namespace {

constexpr uint64_t kCaptures = 2'000, kShards = 4;

Settings settings_of(uint64_t seed) {
  SimRandom random(seed * 60'013 + 11);
  Settings s;
  s.seed = seed + 200'000;
  s.cpus = random.chance(50) ? 2 : 1;
  s.ticks = random.between(8'000, 20'000);
  s.clock_error = random.chance(50) ? 20 : 200;
  s.pokes = 5;
  s.sleeps = true;
  s.overflows = random.chance(10);
  s.recording.dated_copy = random.chance(50);
  return s;
}

// Guests of a KVM host (pt_mode=system), and text that changes.
Settings guests_of(uint64_t seed) {
  SimRandom random(seed * 70'001 + 13);
  Settings s;
  s.seed = seed + 300'000;
  s.cpus = random.chance(50) ? 2 : 1;
  s.ticks = random.between(8'000, 20'000);
  s.clock_error = random.chance(50) ? 20 : 200;
  s.pokes = 5;
  s.guests = true;
  s.coarse_time = random.chance(20);
  s.overflows = random.chance(20);
  s.recording.dated_copy = random.chance(50);
  return s;
}

class SleepStorm : public testing::TestWithParam<uint64_t> {};

void check(uint64_t first, Settings (*settings)(uint64_t), unsigned sure_percent) {
  Score score;
  const uint64_t captures = captures_of(kCaptures);
  for (uint64_t seed = first; seed <= captures; seed += kShards) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const Settings s = settings(seed);
    Simulation run(s);
    for (unsigned cpu = 0; cpu < s.cpus; ++cpu) {
      SCOPED_TRACE(fmt::format("cpu {}", cpu));
      expect_high_confidence_ran(run.decode(cpu), run.truth(cpu), s.coarse_time, score);
    }
    if (testing::Test::HasFatalFailure() && asof::test::first_failure_ends()) return;
  }
  EXPECT_GT(score.high_confidence * 100, score.instructions * sure_percent);
  EXPECT_GT(score.instructions, captures_of(100'000));
  testing::Test::RecordProperty("instructions", std::to_string(score.instructions));
  testing::Test::RecordProperty("high_confidence", std::to_string(score.high_confidence));
  testing::Test::RecordProperty("proved", std::to_string(score.proved));
}

TEST_P(SleepStorm, NothingSureIsWrong) { check(GetParam() + 1, settings_of, 60); }

class GuestStorm : public testing::TestWithParam<uint64_t> {};

TEST_P(GuestStorm, NothingSureIsWrong) { check(GetParam() + 1, guests_of, 30); }

INSTANTIATE_TEST_SUITE_P(Captures, SleepStorm, testing::Range(uint64_t{0}, kShards));
INSTANTIATE_TEST_SUITE_P(Captures, GuestStorm, testing::Range(uint64_t{0}, kShards));

}  // namespace
}  // namespace asof::x86::test
