// Random captures of machines whose text changes without a record: modules reloaded, memory of unloaded
// programs reused, sites patched while records are lost, user text written, two processes at the same
// addresses. What is called certain or proved did run, whatever happened.
#include <algorithm>

#include "tests/arch/x86/storm.h"

namespace asof::x86::test {
namespace {

using Mismatch = asof::test::TracerConfig::Mismatch;

constexpr uint64_t kCaptures = 7'680, kShards = 16;

// Seeds that are long regardless of their number; each has found a fault.
bool is_long(uint64_t seed) {
  constexpr uint64_t kFound[] = {2449, 2547, 4582, 4817};
  return seed % 7 == 0 || std::ranges::find(kFound, seed) != std::end(kFound);
}

Settings settings_of(uint64_t seed) {
  SimRandom random(seed * 50'021 + 7);
  Settings s;
  s.seed = seed + 100'000;
  s.cpus = random.chance(50) ? 2 : 1;
  s.ticks = random.between(6'000, 14'000);
  s.coarse_time = random.chance(50);
  s.clock_error = random.chance(50) ? 200 : 2000;
  s.mismatch = static_cast<Mismatch>(random.below(3));
  s.overflows = random.chance(10);
  s.anchors = random.chance(30);
  s.no_time = random.chance(8);
  s.pokes = random.chance(60) ? 3 : 0;
  s.recording.dated_copy = random.chance(50);
  // One or two of them, so that the effects of each are not hidden by the others.
  for (uint64_t n = random.between(1, 2); n != 0; --n) {
    switch (random.below(5)) {
      case 0:
        s.modules = true;
        break;
      case 1:
        s.programs = s.unannounced = true;
        s.watched = random.chance(50);
        break;
      case 2:
        s.unseen = s.recording.loses_records = true;
        s.recording.overwrites = random.chance(10);
        break;
      case 3:
        s.user_writes = true;
        break;
      default:
        s.processes = true;
    }
  }
  if (is_long(seed)) {  // sites that change many times
    s.ticks = random.between(20'000, 36'000);
    s.pokes = 8;
  }
  return s;
}

class SilentStorm : public testing::TestWithParam<uint64_t> {};

TEST_P(SilentStorm, NothingSureIsWrong) { check_shard({kCaptures, kShards, settings_of, 30}, GetParam()); }

INSTANTIATE_TEST_SUITE_P(Captures, SilentStorm, testing::Range(uint64_t{0}, kShards));

}  // namespace
}  // namespace asof::x86::test
