// Ten thousand random captures: programs whose text other CPUs change while they run, with all defects of
// recordings: records lost or missing, time at sync points only, overflows, addresses reused, return stacks
// that differ. Truth is known by construction. One rule: what is called certain or proved did run.
//
// Where records are lost, the sites that are patched are known, as from the kernel's jump table: all records
// of a site may be among the lost ones.
#include "tests/arch/x86/storm.h"

namespace asof::x86::test {
namespace {

using Mismatch = asof::test::TracerConfig::Mismatch;

constexpr uint64_t kCaptures = 10'240, kShards = 16;

Settings settings_of(uint64_t seed) {
  SimRandom random(seed * 104729 + 3);
  Settings s;
  s.seed = seed;
  s.cpus = random.chance(70) ? 2 : 1;
  s.ticks = random.between(4'000, 9'000);
  s.pokes = 3;
  s.coarse_time = random.chance(50);
  s.overflows = random.chance(20);
  s.clock_error = random.chance(50) ? 200 : 2000;
  s.recording.loses_records = random.chance(40);
  s.recording.breaks_chain = random.chance(15);  // also beside a loss: not all rings were recorded
  if (s.recording.breaks_chain) {                // a chain has at least three changes of one site
    s.ticks = random.between(18'000, 26'000);
    s.pokes = 6;
  }
  s.recording.dated_copy = random.chance(50);
  s.programs = random.chance(40);
  s.anchors = random.chance(50);
  s.mismatch = static_cast<Mismatch>(random.below(3));
  s.silent_mtc = s.coarse_time && seed % 3 == 0;
  return s;
}

class Storm : public testing::TestWithParam<uint64_t> {};

TEST_P(Storm, NothingSureIsWrong) { check_shard({kCaptures, kShards, settings_of, 60}, GetParam()); }

INSTANTIATE_TEST_SUITE_P(Captures, Storm, testing::Range(uint64_t{0}, kShards));

}  // namespace
}  // namespace asof::x86::test
