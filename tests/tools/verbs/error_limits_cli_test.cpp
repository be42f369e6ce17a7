// --strict and --max-errors mean the same in every verb that decodes, and what is said of a decoding that was stopped
// is true for every number of threads.
#include <fmt/format.h>

#include <filesystem>

#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

bool says(const Ran& ran, const std::string& text) {
  return ran.err.find(text) != std::string::npos || ran.out.find(text) != std::string::npos;
}

// The demo without its program, whose code then is missing everywhere.
class ErrorLimits : public testing::Test {
 protected:
  ErrorLimits() {
    fs::copy(ASOF_TEST_DATA "/demo/perf.data", dir_ / "perf.data", fs::copy_options::recursive);
    capture_ = dir_ / "perf.data";
  }
  std::vector<std::string> verbs() const {
    const std::string out = dir_.path();
    return {"decode",
            "script",
            "stacks",
            "branches",
            "branches --format bolt-preagg",
            "coverage",
            "report",
            "digest",
            "timeline --format csv -o " + out + "/rows.csv",
            "timeline --format chrome -o " + out + "/slices.json",
            "timeline --format sqlite -o " + out + "/tables.db",
            "query 'SELECT count(*) FROM calls'",
            "diff --time 0%-50% --time 50%-100%",
            "diff --rows calls --time 0%-50% --time 50%-100%",
            "tables -o " + out + "/tables"};
  }

  TempDir dir_;
  std::string capture_;
};

TEST_F(ErrorLimits, StrictIsForEveryVerb) {
  for (const std::string& verb : verbs()) {
    EXPECT_EQ(run_asof(verb + " -i " + capture_).status, 0) << verb;
    EXPECT_EQ(run_asof(verb + " --strict -i " + capture_).status, 3) << verb;
    EXPECT_EQ(run_asof(verb + " --max-errors 1000000 -i " + capture_).status, 0) << verb;
  }
}

TEST_F(ErrorLimits, MaxErrorsStopsEveryVerb) {
  for (const std::string& verb : verbs()) {
    const Ran ran = run_asof(verb + " --max-errors 3 -i " + capture_);
    EXPECT_EQ(ran.status, 3) << verb << ran.err;
    if (verb != "digest") {
      EXPECT_TRUE(says(ran, "stopped by --max-errors")) << verb << ran.err;
    }
  }
  const Ran checked = run_asof("validate --max-errors 3 -i " + capture_);
  EXPECT_EQ(checked.status, 3);
  EXPECT_TRUE(says(checked, "stopped by --max-errors")) << checked.out;
}

TEST_F(ErrorLimits, LossesInTheRecordingAreNone) {
  for (const char* verb : {"stacks", "branches", "coverage"})
    EXPECT_EQ(run_asof(fmt::format("{} --strict {}", verb, kDemo)).status, 0) << verb;
}

// Workers are ahead of what is delivered by as much as they like.
TEST_F(ErrorLimits, WhatWasReachedIsTheSameForAllThreads) {
  const auto line = [&](const std::string& verb, int jobs) {
    const Ran ran = run_asof(fmt::format("{} --max-errors 3 -j {} {}", verb, jobs, capture_));
    const auto lines = lines_of(ran.err.empty() ? ran.out : ran.err);
    return lines.empty() ? std::string() : lines.back();
  };
  const std::string one = line("decode", 1);
  EXPECT_NE(one.find("stopped by --max-errors at "), std::string::npos) << one;
  EXPECT_EQ(one.find("100.00 % of the trace at most"), std::string::npos) << one;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(line("decode", 4), one);
}

TEST(Numbers, NegativeOnesAreRefused) {
  const TempDir dir;
  for (const std::string arguments :
       {"report --max-errors -1", "report --top -1", "report --max-mem -1",
        "diff --limit -1 --time 0%-50% --time 50%-100%", "validate --cross-check -1",
        "text vfs_read --length -1", "query --cache-size -1 'SELECT 1'",
        "timeline --format csv --max-slices -1"}) {
    const Ran ran = run_asof(arguments + " -i " + kDemo);
    EXPECT_EQ(ran.status, 1) << arguments << ran.err;
    EXPECT_TRUE(says(ran, "'-1' is no number from 0 up")) << arguments << ran.err;
  }
}

}  // namespace
}  // namespace asof::test
