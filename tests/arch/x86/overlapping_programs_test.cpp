// Programs that are loaded one after the other into ranges which overlap partly, recorded such that several
// of them may be there at one instant. Their layers are of one rank, so each address has several candidates,
// and a path may go through bytes of more than one of them: what is called certain or proved must have run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/arch/x86/high_confidence.h"

namespace asof::x86::test {
namespace {

constexpr uint64_t kCaptures = 1'200, kShards = 4;

class OverlappingPrograms : public testing::TestWithParam<uint64_t> {};

TEST_P(OverlappingPrograms, NothingSureIsWrong) {
  Score score;
  uint64_t in_programs = 0, doubtful = 0;
  for (uint64_t seed = GetParam() + 1; seed <= captures_of(kCaptures); seed += kShards) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    SimRandom random(seed * 7333 + 11);
    Settings s;
    s.seed = seed + 50'000;
    s.cpus = 1;
    s.ticks = random.between(8'000, 20'000);
    s.pokes = random.chance(30) ? 2 : 0;
    s.coarse_time = random.chance(50);
    s.programs = s.overlaps = true;
    Simulation run(s);
    const Decoded d = run.decode(0);
    expect_high_confidence_ran(d, run.truth(0), s.coarse_time, score);
    if (HasFatalFailure() && asof::test::first_failure_ends()) return;
    for (const Ran& r : d.ran) {
      if (r.ip < Program::kProgramAt) continue;
      ++in_programs;
      doubtful += r.confidence > Confidence::kProved ? 1 : 0;
    }
  }
  // Both must have occurred: instructions in doubt, and doubt that the trace resolved.
  EXPECT_GT(in_programs, captures_of(1'000));
  EXPECT_GT(doubtful, captures_of(100));
  EXPECT_LT(doubtful, in_programs);
  RecordProperty("in_programs", std::to_string(in_programs));
  RecordProperty("doubtful", std::to_string(doubtful));
}

INSTANTIATE_TEST_SUITE_P(Captures, OverlappingPrograms, testing::Range(uint64_t{0}, kShards));

}  // namespace
}  // namespace asof::x86::test
