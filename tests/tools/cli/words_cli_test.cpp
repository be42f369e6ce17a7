// What asof says of wrong words: verbs, options, paths and filters that name nothing.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <regex>

#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

const std::string kDemoFile = ASOF_TEST_DATA "/demo/perf.data";

void expect_said(const std::string& arguments, int status, const std::string& words) {
  const Ran r = run_asof(arguments);
  EXPECT_EQ(r.status, status) << arguments << "\n" << r.err;
  EXPECT_NE(r.err.find(words), std::string::npos) << arguments << "\n" << r.err;
}

TEST(Words, PerfsOptionsAndOneCode) {
  expect_said("report --stdio " + kDemoFile, 1, "output is text");
  expect_said("report --percent-limit 1 " + kDemoFile, 1, "report --top N");
  EXPECT_EQ(run_asof("errors E-FLOW-001").out, run_asof("errors --explain E-FLOW-001").out);
}

TEST(Words, InputStandsAnywhere) {
  const Ran want = run_asof("text vfs_read -i " + kDemo);
  ASSERT_EQ(want.status, 0) << want.err;
  for (const std::string& arguments : {"text " + kDemoFile + " vfs_read", "text vfs_read " + kDemoFile,
                                       "-i " + kDemoFile + " text vfs_read", kDemoFile + " text vfs_read"})
    EXPECT_EQ(run_asof(arguments).out, want.out) << arguments;
  const Ran diff = run_asof("text --diff start end -i " + kDemo);
  ASSERT_EQ(diff.status, 0) << diff.err;
  EXPECT_EQ(run_asof("text --diff start end " + kDemoFile).out, diff.out);
  EXPECT_EQ(run_asof(kDemoFile + " digest --symfs " ASOF_TEST_DATA "/demo/symfs").out,
            run_asof("digest -i " + kDemo).out);
}

TEST(Words, QueryAndCaptureStandInAnyOrder) {
  const std::string sql = "\"SELECT count(*) FROM pokes\"", demo = ASOF_TEST_DATA "/demo/perf.data";
  for (const std::string& arguments : {sql + " " + demo, demo + " " + sql, sql + " -i " + demo}) {
    const Ran r = run_asof("query " + arguments);
    EXPECT_EQ(r.status, 0) << arguments << r.err;
    EXPECT_EQ(r.out, "count(*)\n10\n") << arguments;
  }
}

TEST(Words, TwoWordsThatAreNoTimes) {
  expect_said("text --diff a b " + kDemoFile, 1,
              "--diff: 'a' and 'b' are not two times (seconds, start, end)");
  expect_said("text a b -i " + kDemoFile, 1, "'b' is no capture that exists");
}

// What there is none of is not counted.
TEST(Words, DifferencesCountWhatThereIs) {
  const Ran r = run_asof("text --diff start end " + kDemoFile);
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.out.find(" 0 "), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("kernel text start .. end: 2 sites differ, 5 changed and changed back, 10 pokes\n"),
            std::string::npos)
      << r.out;
  EXPECT_NE(r.out.find("vfs_read ([kernel.kallsyms]): 1 site changed and changed back, 2 pokes\n"),
            std::string::npos)
      << r.out;
}

TEST(Words, NobodyNeedsToReadThem) {
  for (const std::string& arguments :
       {"digest " + kDemoFile, std::string("digest /no/such/path"), std::string("--no-verb")}) {
    const int want = run_asof(arguments).status;
    const std::string closed = ASOF_BINARY " " + arguments + " >/dev/null 2>&-";
    const int status = std::system(closed.c_str());
    EXPECT_TRUE(WIFEXITED(status)) << arguments;
    EXPECT_EQ(WEXITSTATUS(status), want) << arguments;
  }
  for (const char* arguments : {"--help", "decode --help", "help decode"})
    EXPECT_EQ(run_asof(arguments, "| true").status, run_asof(arguments).status) << arguments;
}

TEST(Words, OutputWithoutAName) {
  for (const char* verb : {"decode", "stacks", "timeline", "branches", "pack"})
    expect_said(verb + (" -o '' " + kDemoFile), 1, "E-FILE-091 --output: a file without a name");
}

TEST(Words, NothingIsSaidToBeConstantThatMayChange) {
  const std::string kernel = run_asof("text vfs_read --history -i " + kDemo).out;
  EXPECT_EQ(kernel.find("never changes"), std::string::npos) << kernel;
  const Ran module = run_asof("text demo_ioctl -i " + kDemo);
  EXPECT_NE(module.out.find("no change is recorded; 4 096 bytes may have changed without a record"),
            std::string::npos)
      << module.out;
}

// Nobody writes to it: whoever opened it would wait.
TEST(Words, AFifoIsNoFile) {
  const TempDir dir;
  const std::string fifo = dir / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  for (const char* option : {"-k", "--kallsyms", "--kcore", "--kcore-end", "--ksym-text", "--jitdump"})
    expect_said("digest " + kDemo + " " + option + " " + fifo, 2, "this is no regular file");
}

TEST(Words, PathsThatAreNotThereStopEveryVerb) {
  for (const char* option : {"-k", "--kallsyms", "--kcore", "--modules", "--symfs", "--buildid-dir",
                             "--kcore-end", "--ksym-text", "--jitdump"}) {
    for (const char* verb : {"decode", "report", "digest", "doctor", "events"})
      expect_said(std::string(verb) + " " + kDemoFile + " " + option + " /no/such/path", 2,
                  "/no/such/path: --");
  }
  expect_said("digest " + kDemo + " -k /etc/passwd", 2, "this is no ELF file");
  expect_said("digest " + kDemoFile + " --symfs /etc/passwd", 2, "this is no folder");
}

TEST(Words, FoldersWithoutWhatTheyAreForAreWarnedOf) {
  const TempDir dir;
  for (const std::string option : {"--modules", "--buildid-dir"}) {
    const std::string arguments = "digest " + kDemo + " " + option + " " + dir.path().string();
    expect_said(arguments, 0, option);
    expect_said(arguments + " --strict", 3, option);
  }
}

TEST(Words, FiltersThatMatchNothing) {
  for (const auto& [filter, words] :
       {std::pair<std::string, std::string>{"-S vfs_raed", "did you mean 'vfs_read'"},
        {"-S 'nothing*'", "no function is 'nothing*'"},
        {"-C 7", "--cpu 7 matches nothing in the capture\n  hint: there is 0-1"},
        {"--pid 999999", "--pid 999999 matches nothing"},
        {"--tid 999999", "--tid 999999 matches nothing"},
        {"--dsos workr", "did you mean 'worker'"},
        {"--time 99,100", "is outside the capture"}}) {
    expect_said("decode " + filter + " " + kDemo, 0, words);
    expect_said("decode --strict " + filter + " " + kDemo, 3, words);
  }
  expect_said("events --type TEXT_POK " + kDemo, 0, "did you mean 'TEXT_POKE'");
  expect_said("events --type TEXT_POK --strict " + kDemo, 3, "no record is a TEXT_POK");
  expect_said("events -C 9 " + kDemo, 0, "--cpu 9 matches nothing");
  expect_said("report -C 7 " + kDemo, 0, "--cpu 7 matches nothing");
  EXPECT_EQ(run_asof("decode --strict -S 'vfs_*' -C 0 " + kDemo).status, 0);
}

TEST(Words, PatternsPickFunctions) {
  const auto lines = [](const std::string& s) {
    return lines_of(run_asof("decode -q -F ip,sym -S " + s + " " + kDemo).out);
  };
  const auto one = lines("vfs_read"), pattern = lines("'vfs_rea?'"), many = lines("'vfs_*'");
  EXPECT_GT(one.size(), 0U);
  EXPECT_EQ(pattern, one);
  EXPECT_GE(many.size(), one.size());
  for (const std::string& l : many) EXPECT_NE(l.find(" vfs_"), std::string::npos) << l;
}

// Segments are decoded whole: what is counted is what lies within the time.
TEST(Words, FiguresAreOfTheTimeAskedFor) {
  for (const char* time : {"6.00003,6.00006", "10%-20%", "99.5%-100%"}) {
    const auto lines = lines_of(run_asof(std::string("decode --time ") + time + " " + kDemo).out).size();
    const std::string last =
        lines_of(run_asof(std::string("report --time ") + time + " " + kDemo).out).back();
    std::smatch count;
    ASSERT_TRUE(std::regex_search(last, count, std::regex("([0-9 ]+) instructions?,"))) << last;
    std::string digits = count[1];
    std::erase(digits, ' ');
    EXPECT_EQ(std::stoul(digits), lines) << last;
    EXPECT_GT(lines, 0U) << time;
  }
  for (const char* verb : {"report", "decode"}) {
    const Ran r = run_asof(std::string(verb) + " --time 99,100 " + kDemo);
    EXPECT_NE((r.out + r.err).find("nothing matched"), std::string::npos) << r.out << r.err;
  }
}

TEST(Words, HeadlineIsTheLowestShare) {
  const TempDir dir;
  const std::string file = (dir.path() / "perf.data").string();
  std::filesystem::copy(kDemoFile + "/data", file);
  const std::string last = lines_of(run_asof("report " + file).out).back();
  std::smatch share;
  ASSERT_TRUE(std::regex_search(last, share, std::regex("decoded ([0-9.]+) % of (trace bytes|traced time)")))
      << last;
  std::smatch other;
  if (std::regex_search(last, other, std::regex("\\(([0-9.]+) % of traced time"))) {
    EXPECT_LE(std::stod(share[1]), std::stod(other[1]));
  }
  EXPECT_NE(lines_of(run_asof("report -C 7 " + kDemo).out).back().find("nothing matched"), std::string::npos);
  const Ran stopped = run_asof("decode -q --max-errors 1 " + file);
  EXPECT_EQ(stopped.status, 3);
  const Ran told = run_asof("report --max-errors 1 " + file);
  EXPECT_NE(lines_of(told.out).back().find("stopped by --max-errors"), std::string::npos) << told.out;
}

TEST(Words, TextOutsideSaysSo) {
  expect_said("text vfs_read@99 -i " + kDemo, 0, "after the end of the capture");
  expect_said("text vfs_read@1 -i " + kDemo, 0, "before the start of the capture");
  expect_said("text vfs_read@99 --strict -i " + kDemo, 3, "the last text that is known");
  expect_said("text vfs_read+200 -i " + kDemo, 0, "vfs_read+0x200 is not in vfs_read");
  expect_said("text vfs_raed -i " + kDemo, 2, "did you mean 'vfs_read'");
  EXPECT_EQ(run_asof("text vfs_read+4 -i " + kDemo).err, "");
}

TEST(Words, ReportTakesFormatTimeTopAndSort) {
  const Ran all = run_asof("report --top 0 " + kDemo), one = run_asof("report --top 1 " + kDemo);
  EXPECT_NE(one.out.find("and "), std::string::npos);
  EXPECT_LT(lines_of(one.out).size(), lines_of(all.out).size());
  EXPECT_NE(run_asof("report --sort dso " + kDemo).out.find("hottest files:"), std::string::npos);
  const Ran json = run_asof("report --format jsonl " + kDemo);
  EXPECT_NE(lines_of(json.out).back().find("\"type\":\"coverage\""), std::string::npos) << json.out;
  const Ran part = run_asof("report --time 10%-20% " + kDemo);
  EXPECT_EQ(part.status, 0) << part.err;
  EXPECT_NE(part.out, run_asof("report " + kDemo).out);
  EXPECT_GT(lines_of(run_asof("events --time 10%-90% " + kDemo).out).size(), 0U);
}

}  // namespace
}  // namespace asof::test
