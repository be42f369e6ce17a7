// `asof script --itrace=...q`: the addresses in the trace, against those that `asof packets` lists, against the whole flow
// and against perf 6.1.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <regex>
#include <set>

#include "tests/support/perf_data_writer.h"
#include "tests/tools/peer_perf.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

std::vector<std::string> quick_lines(const std::string& options) {
  const Ran r = run_asof(fmt::format("script -q {} {}", options, kDemo));
  EXPECT_EQ(r.status, 0) << options << r.err;
  return lines_of(r.out);
}

std::vector<std::string> quick_addresses(const std::string& options) {
  std::vector<std::string> out;
  for (const std::string& line : quick_lines(options + " -F ip")) {
    const size_t at = line.find_first_not_of(' ');
    out.push_back(at == std::string::npos ? "" : line.substr(at, line.find(' ', at) - at));
  }
  return out;
}

// The address of a packet, without 0x.
std::vector<std::string> packet_addresses(const std::string& types) {
  std::vector<std::string> out;
  const std::regex ip(" (?:TIP|TIP\\.PGE|FUP) +0x0*([0-9a-f]+)");
  for (const std::string& line : lines_of(run_asof("packets --type " + types + " " + kDemo).out)) {
    std::smatch found;
    if (std::regex_search(line, found, ip)) out.push_back(found[1]);
  }
  return out;
}

TEST(ScriptQuick, AddressesAreThoseOfThePackets) {
  auto own = quick_addresses("--itrace=iq"), listed = packet_addresses("TIP,TIP.PGE,FUP");
  ASSERT_GT(listed.size(), 4'000U);
  // The flow goes on from where an interrupt was, which may be reported once more.
  EXPECT_NEAR(static_cast<double>(own.size()), static_cast<double>(listed.size()),
              static_cast<double>(listed.size()) / 50);
  const std::set<std::string> there(listed.begin(), listed.end());
  for (const std::string& a : own) ASSERT_TRUE(there.contains(a)) << a;
  const std::set<std::string> seen(own.begin(), own.end());
  for (const std::string& a : packet_addresses("TIP")) ASSERT_TRUE(seen.contains(a)) << a;
}

TEST(ScriptQuick, AddressesAreThoseOfTheFlow) {
  const auto flow = quick_addresses("--itrace=i1i"), own = quick_addresses("--itrace=iq");
  const std::set<std::string> ran(flow.begin(), flow.end());
  size_t others = 0;  // behind an overflow, or where an interrupt came first
  for (const std::string& a : own) others += ran.contains(a) ? 0 : 1;
  EXPECT_LT(others, own.size() / 500);
}

TEST(ScriptQuick, TwiceHasPsbAlone) {
  const auto all = quick_addresses("--itrace=iqq");
  size_t syncs = 0;
  for (const std::string& line : lines_of(run_asof("packets --type PSB " + kDemo).out))
    syncs += line.find("PSB") == std::string::npos ? 0 : 1;
  EXPECT_GT(all.size(), 5U);
  EXPECT_LE(all.size(), syncs);
  const auto once = quick_addresses("--itrace=iq");
  for (const std::string& a : all) EXPECT_NE(std::ranges::find(once, a), once.end()) << a;
}

TEST(ScriptQuick, IsPerfs) {
  ASOF_SKIP_WITHOUT_PERF();
  const TempDir dir;
  const std::string out = dir.path() / "out";
  // perf gives times of the middle of a nanosecond another way, and what is at the same time in another order. Its
  // offsets of PSBs leave out padding.
  const auto without_times = [](std::vector<std::string> lines) {
    static const std::regex time("[0-9]+\\.[0-9]{6}: "), offset("psb offs: 0x[0-9a-f]+ *");
    for (std::string& line : lines)
      line = std::regex_replace(std::regex_replace(line, time, "T: "), offset, "psb ");
    std::ranges::sort(lines);
    return lines;
  };
  for (const char* letters : {"iq", "bq", "cq", "rq", "iqq", "bq -F +addr,+flags", "pwxeq"}) {
    const std::string options = fmt::format("--itrace={}", letters);
    ASSERT_EQ(std::system(fmt::format("perf script -i {} {} >{} 2>/dev/null", kDemo, options, out).c_str()),
              0);
    const auto perf = without_times(lines_of(read_file(out)));
    ASSERT_FALSE(perf.empty());
    const auto own = without_times(quick_lines(options));
    EXPECT_EQ(own.size(), perf.size()) << options;
    std::vector<std::string> differ;
    std::ranges::set_symmetric_difference(own, perf, std::back_inserter(differ));
    EXPECT_LE(differ.size(), perf.size() / 50) << options << "\n"
                                               << fmt::format("{}", fmt::join(differ, "\n"));
  }
}

TEST(ScriptQuick, SaysWhatItDoesNotKnow) {
  const Ran r = run_asof("script --itrace=iq -o /dev/null " + kDemo);
  EXPECT_EQ(r.status, 0);
  EXPECT_NE(r.err.find("no code walked"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("trace is missing at 1 place"), std::string::npos) << r.err;
  for (const char* options : {"--itrace=iqg", "--itrace=iql", "--itrace=bq -F +callindent",
                              "--itrace=bq --graph-function schedule"}) {
    const Ran refused = run_asof(fmt::format("script {} {}", options, kDemo));
    EXPECT_EQ(refused.status, 1) << options;
    EXPECT_NE(refused.err.find("with q the flow is not known"), std::string::npos) << refused.err;
  }
  const Ran arm = run_asof("script --itrace=iq " ASOF_TEST_DATA "/demo-arm64/perf.data");
  EXPECT_EQ(arm.status, 1);
  EXPECT_NE(arm.err.find("Intel PT"), std::string::npos) << arm.err;
}

TEST(ScriptQuick, FiltersAndErrors) {
  const auto one = quick_lines("--itrace=iq -C 1 --time ,6.000020");
  ASSERT_FALSE(one.empty());
  for (const std::string& line : one) ASSERT_NE(line.find("[001]"), std::string::npos) << line;
  EXPECT_LT(one.size(), quick_lines("--itrace=iq -C 1").size());
  size_t errors = 0;
  for (const std::string& line : quick_lines("--itrace=eq"))
    errors += line.starts_with(" instruction trace error") ? 1 : 0;
  EXPECT_GT(errors, 0U);
  EXPECT_TRUE(quick_lines("--itrace=e-o-lq").size() < errors);
}

// Damage costs lines, and is told; whatever the packets say, it is no crash.
TEST(ScriptQuick, DamagedTrace) {
  const auto whole = read_bytes(ASOF_TEST_DATA "/demo/perf.data/data");
  std::mt19937_64 random(9);
  const TempDir dir;
  const std::string file = dir.path() / "data";
  size_t told = 0;
  for (int i = 0; i < 40; ++i) {
    auto bytes = whole;
    for (int n = 0; n < 60; ++n)
      bytes[bytes.size() / 8 + random() % (bytes.size() - bytes.size() / 8)] = static_cast<uint8_t>(random());
    write_bytes(file, bytes);
    const Ran r = run_asof("script --itrace=ibpwxeq -o /dev/null " + file);
    EXPECT_TRUE(r.status == 0 || r.status == 2) << r.status << r.err;  // 2: the machine is not known
    told += r.err.find("without a packet") == std::string::npos ? 0 : 1;
  }
  EXPECT_GT(told, 10U);
}

}  // namespace
}  // namespace asof::test
