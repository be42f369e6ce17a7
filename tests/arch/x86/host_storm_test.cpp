// Random captures with cycle counts (CYC) of CPUs that sleep, in which no cycles are counted, and resume at
// other rates, while text changes: no time bound may exclude the version that ran.
#include "tests/arch/x86/storm.h"

namespace asof::x86::test {
namespace {

constexpr uint64_t kCaptures = 2'000, kShards = 4;

Settings sleeps_of(uint64_t seed) {
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

TEST_P(SleepStorm, NothingSureIsWrong) { check_shard({kCaptures, kShards, sleeps_of, 60}, GetParam()); }

class GuestStorm : public testing::TestWithParam<uint64_t> {};

TEST_P(GuestStorm, NothingSureIsWrong) { check_shard({kCaptures, kShards, guests_of, 30}, GetParam()); }

INSTANTIATE_TEST_SUITE_P(Captures, SleepStorm, testing::Range(uint64_t{0}, kShards));
INSTANTIATE_TEST_SUITE_P(Captures, GuestStorm, testing::Range(uint64_t{0}, kShards));

}  // namespace
}  // namespace asof::x86::test
