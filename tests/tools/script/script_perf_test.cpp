// `asof script` and `perf script` with the same options on the demo capture, line by line. Its text changes, which perf
// does not know: it has errors there and other instructions, and after them other calls. Shares are those of perf 6.1.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <regex>

#include "tests/tools/peer_perf.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

std::vector<std::string> lines_of_perf(const std::string& options) {
  const TempDir dir;
  const std::string out = dir.path() / "out";
  EXPECT_EQ(std::system(fmt::format("perf script -i {} {} >{} 2>/dev/null", kDemo, options, out).c_str()), 0);
  return lines_of(read_file(out));
}

// How many lines are in both, of those of `a`.
double share(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  std::map<std::string, int> there;
  for (const std::string& line : b) ++there[line];
  size_t both = 0;
  for (const std::string& line : a) {
    const auto at = there.find(line);
    if (at == there.end() || at->second == 0) continue;
    --at->second;
    ++both;
  }
  return a.empty() ? 0 : static_cast<double>(both) / static_cast<double>(a.size());
}

std::vector<std::string> without_times(std::vector<std::string> lines) {
  static const std::regex time("[0-9]+\\.[0-9]{6,9}: ");
  for (std::string& line : lines)
    line = std::regex_replace(line, time, "T: ", std::regex_constants::format_first_only);
  return lines;
}

TEST(ScriptPerf, MostLinesAreTheSameBytes) {
  ASOF_SKIP_WITHOUT_PERF();
  struct Case {
    const char* options;
    double bytes, but_for_time;
  };
  for (const Case& c :
       {Case{"--itrace=b", 0.85, 0.97}, Case{"--itrace=b -F +flags", 0.85, 0.97},
        Case{"--itrace=c", 0.85, 0.95}, Case{"--itrace=cr", 0.85, 0.95}, Case{"--itrace=i0", 0.88, 0.97},
        Case{"--insn-trace", 0.55, 0.96},
        Case{
            "--itrace=b -C 1 -F comm,pid,tid,cpu,time,event,period,ip,sym,symoff,dso,addr,flags,insn,insnlen",
            0.85, 0.96}}) {
    const auto perf = lines_of_perf(c.options);
    ASSERT_GT(perf.size(), 1000U) << c.options;
    const Ran r = run_asof(fmt::format("script -q {} {}", c.options, kDemo));
    ASSERT_EQ(r.status, 0) << r.err;
    const auto own = lines_of(r.out);
    EXPECT_GT(share(perf, own), c.bytes) << c.options;
    EXPECT_GT(share(without_times(perf), without_times(own)), c.but_for_time) << c.options;
  }
}

TEST(ScriptPerf, RecordsAreTheSameBytes) {
  ASOF_SKIP_WITHOUT_PERF();
  const std::string options =
      "--show-mmap-events --show-task-events --show-switch-events --show-lost-events --show-bpf-events "
      "--show-text-poke-events --show-namespace-events --show-cgroup-events --itrace=w -F "
      "comm,tid,cpu,time,misc,ip,sym,symoff";
  const auto records = [](std::vector<std::string> lines) {
    std::erase_if(lines, [](const std::string& line) {
      return line.find("PERF_RECORD_") == std::string::npos && line.find(" bytes: ") == std::string::npos;
    });
    std::ranges::sort(lines);
    return lines;
  };
  const auto perf = records(lines_of_perf(options));
  ASSERT_GT(perf.size(), 100U);
  EXPECT_EQ(records(lines_of(run_asof(fmt::format("script -q {} {}", options, kDemo)).out)), perf);
}

// perf does not say the mode of what it makes itself; of what perf inject wrote it does. perf inject knows no --symfs: it
// has no user code, and other branches around it.
TEST(ScriptPerf, ModesAreThoseOfInjectedEvents) {
  ASOF_SKIP_WITHOUT_PERF();
  const TempDir dir;
  const std::string file = dir.path() / "injected", out = dir.path() / "out";
  ASSERT_EQ(std::system(fmt::format("perf inject --itrace=b -i {} -o {} 2>/dev/null",
                                    ASOF_TEST_DATA "/demo/perf.data", file)
                            .c_str()),
            0);
  ASSERT_EQ(
      std::system(fmt::format("perf script -i {} -F misc,ip -C 1 --time ,6.000011 2>/dev/null >{}", file, out)
                      .c_str()),
      0);
  const auto perf = lines_of(read_file(out));
  ASSERT_GT(perf.size(), 100U);
  EXPECT_GT(
      share(perf, lines_of(run_asof("script -q --itrace=b -F misc,ip -C 1 --time ,6.000011 " + kDemo).out)),
      0.9);
}

// Until the first change of text there is no reason for a difference but time and how long tasks last.
TEST(ScriptPerf, ChainsAndBranchStacksAreThoseOfPerfBeforeTextChanges) {
  ASOF_SKIP_WITHOUT_PERF();
  for (const char* options :
       {"--itrace=i20ig -C 1 --time ,6.000011", "--itrace=i20il8 -F +brstack -C 1 --time ,6.000011",
        "--itrace=i20il8 -F ip,brstackinsn,brstackinsnlen -C 1 --time ,6.000011"}) {
    const auto perf = without_times(lines_of_perf(options));
    const auto own = without_times(lines_of(run_asof(fmt::format("script -q {} {}", options, kDemo)).out));
    ASSERT_GT(perf.size(), 20U);
    EXPECT_GT(share(perf, own), 0.95) << options;
  }
}

}  // namespace
}  // namespace asof::test
