// With --time, all that is printed is of that time: pokes, programs, losses, and gaps that reach into it.
#include <fmt/format.h>

#include <filesystem>

#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

bool has_text(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string count_of(const std::string& sql, const std::string& time) {
  const Ran ran = run_asof("query \"" + sql + "\" --time " + time + " -i " + kDemo);
  const auto lines = lines_of(ran.out);
  return lines.size() == 2 ? lines[1] : ran.err;
}

TEST(TimeParts, CountPokesAndProgramsAsTheTablesDo) {
  for (const char* time : {"6.00002,6.00003", "6.00003,6.00005", "6,6.00001", "6.00007,6.00009", ",7"}) {
    const std::string pokes = count_of("SELECT count(*) FROM pokes", time),
                      programs = count_of("SELECT count(*) FROM text_lives WHERE kind = 'bpf'", time);
    const std::string said = fmt::format("{} poke{}, {} BPF program{}", pokes, pokes == "1" ? "" : "s",
                                         programs, programs == "1" ? "" : "s");
    const std::string arguments = fmt::format(" --time {} {}", time, kDemo);
    const Ran report = run_asof("report" + arguments);
    EXPECT_TRUE(has_text(report.out, "text: " + said)) << report.out;
    EXPECT_TRUE(has_text(report.out, "instructions, " + said + ", ")) << report.out;
    EXPECT_TRUE(has_text(run_asof("decode" + arguments).err, "instructions, " + said + ", ")) << arguments;
  }
}

TEST(TimeParts, ListTheirOwnLosses) {
  const std::string loss = "loss: cpu 1 at 6.000094999";
  EXPECT_TRUE(has_text(run_asof("report --time 6.00009,6.0001 " + kDemo).out, loss));
  EXPECT_FALSE(has_text(run_asof("report --time 6.00001,6.00009 " + kDemo).out, loss));
  EXPECT_FALSE(has_text(run_asof("report --time 6.00011,6.00012 " + kDemo).out, loss));
}

// The buffer of CPU 1 is full from 95 to 102 us after the start.
TEST(TimeParts, ShowGapsThatBeganBefore) {
  const Ran ran = run_asof("decode --format jsonl --itrace=e --time 6.0001,6.00011 " + kDemo);
  EXPECT_TRUE(has_text(ran.err, "1 gap")) << ran.err;
  EXPECT_TRUE(has_text(ran.err, "E-LOST-103 cpu 1 6.000094999")) << ran.err;
  const auto lines = lines_of(ran.out);
  ASSERT_EQ(lines.size(), 1U) << ran.out;
  EXPECT_TRUE(has_text(lines[0], "\"time\":6000100000")) << lines[0];
}

TEST(TimeParts, OfRecordsWithoutTimesHaveNoPercentages) {
  const Ran ran = run_asof("decode --time 10%-20% " ASOF_TEST_DATA "/machine-7.3/thread-user-uprobe.tar.xz");
  EXPECT_EQ(ran.status, 1);
  EXPECT_TRUE(has_text(ran.err, "percentages need records with times")) << ran.err;
  EXPECT_TRUE(has_text(ran.err, "hint: give seconds")) << ran.err;
}

TEST(LastLine, SaysWhatTheFiltersSelected) {
  const Ran none = run_asof("decode -S _start --tid 999999 " + kDemo);
  EXPECT_TRUE(has_text(none.err,
                       "nothing matched: decoded 97.08 % of traced time (1 gap, 7.0 us), 61 625 "
                       "instructions, 0 of them selected, "))
      << none.err;
  const Ran some = run_asof("decode -S vfs_read " + kDemo);
  std::string said = some.err;
  std::erase(said, ' ');
  EXPECT_TRUE(has_text(said, fmt::format(",{}ofthemselected,", lines_of(some.out).size()))) << some.err;
  EXPECT_TRUE(has_text(run_asof("script --tid 999999 " + kDemo).err, ", 0 lines selected, "));
  EXPECT_FALSE(has_text(run_asof("decode " + kDemo).err, "selected"));
}

TEST(LastLine, SaysThatNothingMatchedInABlockStream) {
  const TempDir dir;
  const std::string blocks = dir / "c0.blocks";
  ASSERT_EQ(run_asof("decode -C 0 --format blocks -o " + blocks + " " + kDemo).status, 0);
  const Ran ran = run_asof("report -C 1 " + blocks);
  EXPECT_TRUE(has_text(ran.out, "nothing matched")) << ran.out;
  EXPECT_FALSE(has_text(ran.out, "0.00 %")) << ran.out;
}

// Tracing is off most of the time there.
TEST(UntracedTime, IsInNoRowOfADifference) {
  const std::string capture = ASOF_TEST_DATA "/machine-6.1/kernel-tailcall.tar.xz";
  const std::string both = " --time ,99999 --time ,99999 --limit 1 " + capture;
  const auto sums = [&](const std::string& rows) {
    const auto lines = lines_of(run_asof("diff --rows " + rows + both).out);
    // A, B and change of ns and instructions; "12 345" is a number.
    return lines.empty() ? std::string() : lines.back().substr(0, 6 * 15);
  };
  const std::string functions = sums("functions");
  EXPECT_TRUE(has_text(functions, "2 461 590")) << functions;
  EXPECT_EQ(sums("calls"), functions);
  EXPECT_EQ(sums("paths"), functions);
  uint64_t known = 0, untraced = 0;
  for (const std::string& line : lines_of(run_asof("stacks " + capture).out)) {
    const size_t space = line.rfind(' ');
    const uint64_t ns = std::stoull(line.substr(space + 1));
    (line.substr(0, space).ends_with("(not traced)") ? untraced : known) += ns;
  }
  EXPECT_GT(untraced, known);
  std::string digits;
  for (const char c : functions.substr(0, 14)) {
    if (c != ' ') digits += c;
  }
  EXPECT_EQ(digits, std::to_string(known));
}

}  // namespace
}  // namespace asof::test
