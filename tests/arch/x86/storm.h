// Many random simulations with one rule: what is called certain or proved did run. ASOF_TEST_CAPTURES=n makes n
// times as many, and continues after a failure.
#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/arch/x86/high_confidence.h"

namespace asof::x86::test {

struct StormPlan {
  uint64_t captures, shards;
  Settings (*settings_of)(uint64_t seed);
  unsigned percent;  // of the instructions that must have high confidence
};

inline std::string name_of(const Settings& s) {
  return fmt::format(
      "{}{}{}{}{}{}{}{}{}{}{}", s.modules ? " modules" : "", s.unannounced ? " programs" : "",
      s.watched ? " watched" : "", s.unseen ? " losses" : "", s.recording.overwrites ? " overwrites" : "",
      s.user_writes ? " user-writes" : "", s.processes ? " processes" : "", s.no_time ? " no-time" : "",
      s.coarse_time ? " coarse" : "", s.pokes != 0 ? " pokes" : "", s.overflows ? " overflows" : "");
}

// The captures of one shard.
inline void check_shard(const StormPlan& plan, uint64_t shard) {
  Score score;
  for (uint64_t seed = shard + 1; seed <= captures_of(plan.captures); seed += plan.shards) {
    const Settings s = plan.settings_of(seed);
    SCOPED_TRACE(fmt::format("seed {}:{}", seed, name_of(s)));
    Simulation run(s);
    for (unsigned cpu = 0; cpu < s.cpus; ++cpu) {
      SCOPED_TRACE(fmt::format("cpu {}", cpu));
      expect_high_confidence_ran(run.decode(cpu), run.truth(cpu), s.coarse_time && !s.no_time, score);
    }
    if (testing::Test::HasFatalFailure() && asof::test::first_failure_ends()) return;
  }
  expect_enough(score, plan.percent);
}

}  // namespace asof::x86::test
