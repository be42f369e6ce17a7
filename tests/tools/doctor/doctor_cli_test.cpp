// asof doctor as a program: output, and exit status by what it found.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tests/support/skip_without.h"
#include "tests/tools/on_terminal.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

TEST(DoctorCli, DemoIsFineButForItsLoss) {
  const Ran r = run_asof("doctor " + kDemo);
  EXPECT_EQ(r.status, 0) << r.out << r.err;
  EXPECT_NE(r.out.find("ok    pokes "), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("warn  trace-loss "), std::string::npos) << r.out;
  EXPECT_EQ(run_asof("doctor --strict " + kDemo).status, 3);
}

TEST(DoctorCli, ATerminalGetsColoursAndItsOwnWidth) {
  ASOF_SKIP_WITHOUT_TERMINAL();
  const Ran plain = run_asof("doctor " + kDemo);
  EXPECT_EQ(plain.out.find('\x1b'), std::string::npos);
  const auto lines = on_terminal("doctor " + kDemo);
  ASSERT_GT(lines.size(), lines_of(plain.out).size());
  std::string words, plain_words;
  bool green = false, yellow = false;
  for (std::string line : lines) {
    green = green || line.starts_with("\x1b[32mok\x1b[0m    pokes ");
    yellow = yellow || line.starts_with("\x1b[33mwarn\x1b[0m  trace-loss ");
    if (const size_t begin = line.find('\x1b'); begin == 0)
      line.erase(line.find("\x1b[0m"), 4).erase(0, line.find('m') + 1);
    // Longer ones are paths.
    EXPECT_TRUE(line.size() <= 60 || line.find('/') != std::string::npos) << line;
    words += line;
  }
  EXPECT_TRUE(green && yellow) << words;
  plain_words = plain.out;
  for (std::string* text : {&words, &plain_words})
    std::erase_if(*text, [](char c) { return c == ' ' || c == '\n'; });
  EXPECT_EQ(words, plain_words);
  EXPECT_NE(run_asof("doctor --color always " + kDemo).out.find("\x1b[32mok\x1b[0m"), std::string::npos);
}

TEST(DoctorCli, JsonLinesAddUp) {
  const auto lines = lines_of(run_asof("doctor --format jsonl " + kDemo).out);
  ASSERT_GT(lines.size(), 5U);
  std::map<std::string, int> verdicts;
  for (const std::string& line : lines) {
    const auto d = nlohmann::json::parse(line, nullptr, false);
    ASSERT_FALSE(d.is_discarded()) << line;
    if (d["type"] == "finding") ++verdicts[d["verdict"]];
    if (d["type"] == "summary") {
      EXPECT_EQ(d["ok"], verdicts["ok"]);
      EXPECT_EQ(d["warn"], verdicts["warn"]);
      EXPECT_EQ(d["bad"], verdicts["bad"]);
    }
  }
}

TEST(DoctorCli, RecordingWithoutKernelTextExitsWith3) {
  const TempDir dir;
  std::filesystem::copy(ASOF_TEST_DATA "/demo/perf.data/data", dir.path() / "perf.data");
  const Ran r = run_asof("doctor " + (dir.path() / "perf.data").string());
  EXPECT_EQ(r.status, 3) << r.out;
  EXPECT_NE(r.out.find("bad   kernel-text"), std::string::npos) << r.out;
  EXPECT_EQ(run_asof("doctor /nowhere").status, 2);
}

// Doctor and report state what is open in the same words, and decode marks the instructions with them.
TEST(DoctorCli, OpenMattersAreReportedEverywhere) {
  const std::string capture = shared("captures/perf-faults/cs_nopoke");
  SKIP_WITHOUT(capture);
  const std::string words = "kernel text: ambiguous, because nothing in the recording shows changes of it\n";
  EXPECT_NE(run_asof("doctor " + capture).out.find("warn  open         " + words), std::string::npos);
  EXPECT_NE(run_asof("report " + capture).out.find("what the recording leaves open:\n  " + words),
            std::string::npos);
  const auto lines = lines_of(run_asof("decode -F ip,conf " + capture).out);
  ASSERT_FALSE(lines.empty());
  for (const std::string& line : lines) EXPECT_TRUE(line.ends_with(" ambiguous")) << line;
}

// A derived clock that is exact only to milliseconds.
TEST(DoctorCli, ClockThatIsNotExact) {
  const std::string capture = shared("captures/arm64-board-tiny/poke-rawaux.data");
  SKIP_WITHOUT(capture);
  const std::string out = run_asof("doctor " + capture).out;
  EXPECT_NE(out.find("warn  clock        trace time converts to perf's clock, but not exactly"),
            std::string::npos)
      << out;
  EXPECT_NE(out.find("near its changes, and which process runs: ambiguous, because the clock of the trace"),
            std::string::npos)
      << out;
}

// Recordings of real kernels and of real perf: whatever they lack, the doctor must report it and end.
TEST(DoctorCli, OtherCaptures) {
  for (const char* path : {"captures/x86-board-small/perf.data", "captures/perf-faults/live-bpf.perf.data",
                           "corpus/lldb-intelpt-trace/trace.json", "captures/pt-work-1round"}) {
    SKIP_WITHOUT(shared(path));
    const Ran r = run_asof("doctor " + shared(path));
    EXPECT_TRUE(r.status == 0 || r.status == 3) << path << r.err;
    EXPECT_NE(r.out.find(" bad\n"), std::string::npos) << path;
  }
}

}  // namespace
}  // namespace asof::test
