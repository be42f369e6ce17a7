// asof stacks --time: what ran within it, under all its callers.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/tools/run_asof.h"
#include "tools/profile/folded_stacks.h"

namespace asof::test {
namespace {

struct StacksTime : ::testing::TestWithParam<const char*> {
  Capture open() const {
    CaptureOptions options;
    options.host_files = false;
    options.symfs = ASOF_TEST_DATA "/demo/symfs";
    auto opened = open_capture(std::string(ASOF_TEST_DATA "/") + GetParam() + "/perf.data", options);
    EXPECT_TRUE(opened);
    return std::move(*opened);
  }
};

using Costs = std::map<std::string, Cost>;

Costs stacks_within(const Capture& capture, TimeBounds time, TimelineSummary* summary = nullptr) {
  TimelineOptions options;
  options.thread_tracks = false;
  options.counted = time;
  FoldedStacks stacks({.time = time});
  const auto run = run_timeline(capture, options, stacks);
  EXPECT_TRUE(run);
  if (run && summary != nullptr) *summary = *run;
  Costs costs;
  stacks.visit([&](std::span<const uint32_t> stack, const Cost& own) {
    std::string name;
    for (const uint32_t frame : stack) name += stacks.names()[frame] + ";";
    costs[name] += own;
  });
  return costs;
}

TEST_P(StacksTime, PartsAddUpToTheWhole) {
  const Capture capture = open();
  TimelineSummary summary;
  const Costs whole = stacks_within(capture, {}, &summary);
  ASSERT_EQ(summary.clock, TimelineSummary::Clock::kNanoseconds);
  const Time third = (summary.end - summary.begin) / 3, one = summary.begin + third, two = one + third;
  Costs parts;
  for (const TimeBounds time : {TimeBounds{kTimeMin, one}, {one + 1, two}, {two + 1, kTimeMax}}) {
    const Costs part = stacks_within(capture, time);
    EXPECT_FALSE(part.empty());
    EXPECT_LT(part.size(), whole.size());
    for (const auto& [stack, own] : part) parts[stack] += own;
  }
  uint64_t ns_whole = 0, ns_parts = 0;
  for (const auto& [stack, own] : whole) {
    EXPECT_EQ(parts[stack].instructions, own.instructions) << stack;
    EXPECT_EQ(parts[stack].calls, own.calls) << stack;
    ns_whole += own.ns;
    ns_parts += parts[stack].ns;
  }
  EXPECT_EQ(parts.size(), whole.size());
  // A nanosecond of each CPU lies between two parts.
  EXPECT_LE(ns_parts, ns_whole);
  EXPECT_LE(ns_whole - ns_parts, 2 * capture.streams.size());
}

TEST_P(StacksTime, InstructionsAreThoseOfDecode) {
  const std::string capture = std::string(ASOF_TEST_DATA "/") + GetParam() +
                              "/perf.data --symfs " ASOF_TEST_DATA "/demo/symfs --time 40%-60%";
  for (const std::string more : {"", " --inline --source"}) {
    const Ran stacks = run_asof("stacks -q --weight instructions " + capture + more);
    ASSERT_EQ(stacks.status, 0) << stacks.err;
    uint64_t instructions = 0;
    for (const std::string& line : lines_of(stacks.out))
      instructions += std::stoull(line.substr(line.rfind(' ')));
    const Ran decode = run_asof("decode -q --itrace i -F ip " + capture, "| wc -l");
    EXPECT_GT(instructions, 0U);
    EXPECT_EQ(instructions, std::stoull(decode.out)) << more;
  }
}

// As decode has it: there is nothing then, which is no failure to decode.
TEST_P(StacksTime, OutsideOfTheCaptureIsAnEmptyAnswer) {
  const Ran ran = run_asof(std::string("stacks --time 900,901 " ASOF_TEST_DATA "/") + GetParam() +
                           "/perf.data --symfs " ASOF_TEST_DATA "/demo/symfs");
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.out, "");
  EXPECT_NE(ran.err.find("E-FILE-091"), std::string::npos) << ran.err;
  EXPECT_EQ(ran.err.find("nothing of the trace could be decoded"), std::string::npos) << ran.err;
}

INSTANTIATE_TEST_SUITE_P(Demos, StacksTime, ::testing::Values("demo", "demo-arm64"),
                         [](const auto& p) { return p.index == 0 ? "x86" : "arm64"; });

}  // namespace
}  // namespace asof::test
