// Branches counted by pairs of entries against the same branches taken one by one: chunks of any size, any
// number of workers, windows of time, damaged trace, pieces of text without names.
#include "tools/profile/branch_count.h"

#include <gtest/gtest.h>

#include "tests/decoder/capture_test_util.h"

namespace asof::test {
namespace {

std::string csv(const BranchCounts& counts) {
  std::string out;
  counts.write_csv([&](std::string_view text) { out += text; });
  return out;
}

struct Demo {
  const char* name;
  uint64_t least;  // bytes of table
  bool has_user;   // its programs are traced, too
};
void PrintTo(const Demo& demo, std::ostream* out) { *out << demo.name; }

class BranchCount : public ::testing::TestWithParam<Demo> {
 protected:
  void SetUp() override {
    CaptureOptions options = closed_options();
    options.symfs = ASOF_TEST_DATA "/demo/symfs";
    auto opened = open_capture(std::string(ASOF_TEST_DATA "/") + GetParam().name + "/perf.data", options);
    ASSERT_TRUE(opened);
    capture_ = std::move(*opened);
  }
  std::string one_by_one(TimeBounds time, const std::vector<std::string>& dsos) {
    BranchNames names(capture_, dsos);
    BranchCounts counts;
    const TaskChoice all;
    TakenBranches branches(capture_, time, all, [&](const TakenBranch& b) { counts.add(b, names); });
    EXPECT_TRUE(run_pipeline(capture_, {.jobs = 1, .time = time}, ChunkOrder::kByStream, branches));
    return csv(counts);
  }
  std::string by_pairs(PipelineOptions options, const std::vector<std::string>& dsos) {
    CountedBranches branches(capture_, dsos, options.time);
    EXPECT_TRUE(run_pipeline(capture_, options, ChunkOrder::kByStream, branches));
    return csv(branches.counts());
  }
  Capture capture_;
};

TEST_P(BranchCount, IsThatOfBranchesTakenOneByOne) {
  const std::string expected = one_by_one({}, {});
  ASSERT_GT(expected.size(), GetParam().least);
  for (const unsigned jobs : {1U, 2U, 5U}) {
    for (const size_t steps : {size_t{1}, size_t{2}, size_t{7}, size_t{65536}}) {
      PipelineOptions options{.jobs = jobs};
      options.decode.chunk_steps = steps;
      EXPECT_EQ(by_pairs(options, {}), expected) << jobs << " jobs, chunks of " << steps;
    }
  }
}

TEST_P(BranchCount, HoldsWithinTimesAndFiles) {
  TimeBounds whole{kTimeMax, kTimeMin};
  for (const Stream& s : capture_.streams)
    whole = {std::min(whole.lo, s.bounds.lo), std::max(whole.hi, s.bounds.hi)};
  ASSERT_LT(whole.lo, whole.hi);
  const TimeBounds window{whole.lo + (whole.hi - whole.lo) / 4, whole.hi - (whole.hi - whole.lo) / 3};
  const std::string all = one_by_one({}, {}), expected = one_by_one(window, {});
  EXPECT_NE(expected, all);
  EXPECT_EQ(by_pairs({.jobs = 2, .time = window}, {}), expected);
  const std::string kernel = one_by_one({}, {"[kernel.kallsyms]"});
  if (GetParam().has_user) {
    EXPECT_NE(kernel, all);
  }
  EXPECT_EQ(by_pairs({.jobs = 2}, {"[kernel.kallsyms]"}), kernel);
}

// Every visit of a block is a step of its own, as where text changes.
TEST_P(BranchCount, IsThatOfLooseSteps) {
  PipelineOptions options{.jobs = 2};
  options.decode.block_cache = false;
  EXPECT_EQ(by_pairs(options, {}), one_by_one({}, {}));
}

INSTANTIATE_TEST_SUITE_P(Demos, BranchCount,
                         ::testing::Values(Demo{"demo", 3000, true}, Demo{"demo-arm64", 3000, false}),
                         [](const auto& info) { return info.index == 0 ? "x86" : "arm64"; });

}  // namespace
}  // namespace asof::test
