// Filters of decode and events that pick tasks and files.
#include <nlohmann/json.hpp>

#include <set>

#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

std::vector<nlohmann::json> json_of(const std::string& arguments) {
  const Ran r = run_asof(arguments + " " + kDemo);
  EXPECT_EQ(r.status, 0) << arguments << r.err;
  std::vector<nlohmann::json> out;
  for (const std::string& line : lines_of(r.out)) out.push_back(nlohmann::json::parse(line));
  return out;
}

std::multiset<std::string> keys(const std::vector<nlohmann::json>& lines,
                                const std::function<bool(const nlohmann::json&)>& wanted) {
  std::multiset<std::string> out;
  for (const auto& d : lines) {
    if (wanted(d)) out.insert(d.dump());
  }
  return out;
}

TEST(Filters, PidAndTidPickTheirTasks) {
  const std::string fields = "decode -q --format jsonl -F pid,tid,cpu,time,ip,dso";
  const auto all = json_of(fields);
  std::set<int> pids;
  for (const auto& d : all) pids.insert(d["pid"].get<int>());
  ASSERT_GE(pids.size(), 2U);
  for (const char* option : {"--pid", "--tid"}) {
    const std::string key = std::string(option).substr(2);
    for (const int pid : pids) {
      const auto some = json_of(fields + " " + option + " " + std::to_string(pid));
      EXPECT_EQ(keys(some, [](const auto&) { return true; }),
                keys(all, [&](const auto& d) { return d[key] == pid; }))
          << option << pid;
    }
  }
  EXPECT_TRUE(json_of(fields + " --pid 999999").empty());
}

TEST(Filters, DsosPickTheirFiles) {
  const std::string fields = "decode -q --format jsonl -F cpu,time,ip,sym,dso";
  const auto all = json_of(fields);
  std::set<std::string> dsos;
  for (const auto& d : all) {
    if (d.contains("dso")) dsos.insert(d["dso"].get<std::string>());
  }
  ASSERT_TRUE(dsos.contains("[kernel.kallsyms]"));
  ASSERT_GE(dsos.size(), 3U);
  for (const std::string& dso : dsos) {
    const auto some = json_of(fields + " --dsos '" + dso + "'");
    EXPECT_EQ(keys(some, [](const auto&) { return true; }),
              keys(all, [&](const auto& d) { return d.contains("dso") && d["dso"] == dso; }))
        << dso;
  }
  EXPECT_TRUE(json_of(fields + " --dsos /no/such/file").empty());
}

TEST(Filters, OfWhichNothingRanIsSaid) {
  for (const auto& [options, selected] :
       {std::pair("--addr-range 1-2,3-4", "--addr-range"),
        std::pair("-S update_process_times --addr-range 1-2", "--symbols and --addr-range")}) {
    const Ran r = run_asof(std::string("decode --strict ") + options + " " + kDemo);
    EXPECT_EQ(r.out, "") << options;
    EXPECT_EQ(r.status, 3) << options;
    EXPECT_NE(r.err.find(std::string("of what ") + selected + " selects, nothing ran"), std::string::npos)
        << options << r.err;
  }
  const Ran some = run_asof(std::string("decode -S update_process_times ") + kDemo);
  EXPECT_FALSE(some.out.empty());
  EXPECT_EQ(some.err.find("nothing ran"), std::string::npos) << some.err;
}

TEST(Filters, EventsByTypeCpuAndTime) {
  const auto all = lines_of(run_asof("events " + kDemo).out);
  const auto pokes = lines_of(run_asof("events --type text_poke " + kDemo).out);
  EXPECT_EQ(pokes.size(), 10U);
  for (const std::string& line : pokes) EXPECT_NE(line.find(" TEXT_POKE "), std::string::npos) << line;
  EXPECT_EQ(lines_of(run_asof("events --type PERF_RECORD_TEXT_POKE " + kDemo).out), pokes);
  const auto cpu0 = lines_of(run_asof("events -C 0 " + kDemo).out);
  for (const std::string& line : cpu0) EXPECT_NE(line.find("[000]"), std::string::npos) << line;
  EXPECT_GT(cpu0.size(), 3U);
  EXPECT_LT(cpu0.size(), all.size());
  const auto early = lines_of(run_asof("events --time ,6.00003 " + kDemo).out);
  EXPECT_LT(early.size(), all.size());
  for (const std::string& line : early) EXPECT_LE(std::stod(line.substr(0, 16)), 6.00003) << line;
  EXPECT_TRUE(run_asof("events --type NO_SUCH_RECORD " + kDemo).out.empty());
  EXPECT_EQ(run_asof("events --pid x " + kDemo).status, 1);
  std::vector<std::string> times;
  for (const std::string& line : all) times.push_back(line.substr(0, 16));
  EXPECT_TRUE(std::is_sorted(times.begin(), times.end(), [](const std::string& a, const std::string& b) {
    const auto value = [](const std::string& s) {
      return s.find('-') != std::string::npos ? -1.0 : std::stod(s);
    };
    return value(a) < value(b);
  }));
}

}  // namespace
}  // namespace asof::test
