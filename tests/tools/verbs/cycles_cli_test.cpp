// Cycles of a real program of which every instruction takes the same number: what is counted is known exactly.
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "tests/tools/peer_perf.h"
#include "tests/tools/stepped_test.h"
#include "tests/tools/timeline/html_unpack.h"

namespace asof::test {
namespace {

constexpr const char* kSource = R"(
__attribute__((noinline)) int leaf(int x) { return x * 3 + 1; }
__attribute__((noinline)) int busy(int n) {
  volatile int s = 0;
  for (int i = 0; i < n; ++i) s += i;
  return s;
}
__attribute__((noinline)) int work(int x) { return x % 7 == 0 ? busy(50) : leaf(x); }
void _start(void) {
  volatile int sum = 0;
  for (int i = 0; i < 100; ++i) sum += work(i);
  __asm__ volatile("syscall" ::"a"(60), "D"(0));
  for (;;) {}
}
)";

class Cycles : public SteppedTest {
 protected:
  void SetUp() override { record(kSource, "-O1", true); }
  std::vector<nlohmann::json> objects(const std::string& arguments) {
    const Ran r = run_asof(arguments + " " + path("perf.data"));
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(r.err.find("I-DATA-013"), std::string::npos) << r.err;
    std::vector<nlohmann::json> out;
    for (const std::string& line : lines_of(r.out)) out.push_back(nlohmann::json::parse(line));
    return out;
  }
  std::string function_at(Addr at) const {
    std::string best;
    for (const auto& [name, begin] : functions_) {
      if (begin <= at && (best.empty() || begin > functions_.at(best))) best = name;
    }
    return best;
  }
};

// From each count to the next: three cycles for each instruction, of which it is known within bounds which they were.
TEST_F(Cycles, EveryCountIsWithinItsBounds) {
  uint64_t counts = 0, cycles = 0, instructions = 0;
  for (const auto& j : objects("decode --cycles --format jsonl -F time,ip")) {
    if (j["type"] != "cyc" || !j.contains("cycles") || !j.contains("instructions")) continue;
    const auto of = [&](const char* key) { return j[key].get<uint64_t>(); };
    ++counts;
    cycles += of("cycles");
    instructions += of("instructions");
    EXPECT_LE(of("instructions_least") * kSteppedCycles, of("cycles")) << j;
    EXPECT_GE(of("instructions_most") * kSteppedCycles, of("cycles")) << j;
    EXPECT_LE(of("instructions_least"), of("instructions")) << j;
    EXPECT_GE(of("instructions_most"), of("instructions")) << j;
    EXPECT_LE(of("instructions_most") - of("instructions_least"), 60U) << j;
  }
  EXPECT_GT(counts, 150U);
  EXPECT_GT(cycles, ran_.instructions * kSteppedCycles * 8 / 10) << "most of the trace is between counts";
  EXPECT_NEAR(static_cast<double>(cycles) / static_cast<double>(instructions), kSteppedCycles, 0.05);
}

// By function, block and call: what is certain is not more than the truth, and what is possible not less. What ran
// outside of all counts belongs to nobody.
TEST_F(Cycles, BoundsHoldByFunctionBlockAndCall) {
  std::map<std::string, uint64_t> truth, least, most;
  uint64_t all = 0, counted = 0;
  for (const auto& [at, count] : ran_.counts) {
    truth[function_at(at)] += count * kSteppedCycles;
    all += count * kSteppedCycles;
  }
  size_t blocks = 0, calls = 0;
  const auto rows = objects("report --cycles --format jsonl --top 0");
  for (const auto& j : rows) {
    if (j["type"] == "cycles") counted = j["counted"].get<uint64_t>();
  }
  ASSERT_GT(counted, all * 8 / 10);
  ASSERT_LE(counted, all);
  const uint64_t elsewhere = all - counted;
  for (const auto& j : rows) {
    if (j["type"] == "function_cycles") {
      const std::string name = j["name"];
      least[name] = j["cycles_least"], most[name] = j["cycles_most"];
      EXPECT_LE(least[name], truth.at(name)) << name;
      EXPECT_GE(most[name] + elsewhere, truth.at(name)) << name;
      EXPECT_LE(j["instructions_least"].get<uint64_t>() * kSteppedCycles, truth.at(name)) << name;
    } else if (j["type"] == "block_cycles") {
      ++blocks;
      const Addr at = std::stoull(j["address"].get<std::string>(), nullptr, 16);
      uint64_t cycles = 0;
      for (auto i = ran_.counts.lower_bound(at);
           i != ran_.counts.end() && i->first < at + j["size"].get<uint64_t>(); ++i)
        cycles += i->second * kSteppedCycles;
      EXPECT_LE(j["cycles_least"].get<uint64_t>(), cycles) << j;
    } else if (j["type"] == "call_cycles" && j["callee"] == "busy") {
      ++calls;
      // 50 rounds each; from the call to its return.
      const uint64_t each = truth.at("busy") / 15 + kSteppedCycles;
      const auto n = j["calls"].get<uint64_t>();
      EXPECT_GE(n, 12U);
      EXPECT_LE(j["cycles_least"].get<uint64_t>(), n * each) << j;
      EXPECT_GE(j["cycles_most"].get<uint64_t>() + n, n * each) << j;
      EXPECT_GT(j["cycles_least"].get<uint64_t>(), n * each / 2) << "the bounds say something";
    }
  }
  EXPECT_GT(blocks, 5U);
  EXPECT_EQ(calls, 1U);
  // A loop has most counts to itself.
  EXPECT_GT(least.at("busy"), truth.at("busy") * 7 / 10);
  EXPECT_LT(most.at("busy"), truth.at("busy") * 13 / 10);
}

TEST_F(Cycles, TablesHaveWhatReportHas) {
  const Ran r =
      run_asof("query --format csv \"SELECT name, cycles_least, cycles_most FROM function_cycles\" -i " +
               path("perf.data"));
  ASSERT_EQ(r.status, 0) << r.err;
  size_t found = 0;
  for (const auto& j : objects("report --cycles --format jsonl --top 0")) {
    if (j["type"] != "function_cycles") continue;
    ++found;
    EXPECT_NE(r.out.find(fmt::format("{},{},{}", j["name"].get<std::string>(),
                                     j["cycles_least"].get<uint64_t>(), j["cycles_most"].get<uint64_t>())),
              std::string::npos)
        << j << r.out;
  }
  EXPECT_EQ(found, 4U);
  const Ran text = run_asof("report --cycles " + path("perf.data"));
  EXPECT_NE(text.out.find("cycles of functions themselves:"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("_start -> work"), std::string::npos) << text.out;
}

// The page has the same bounds by function, block and call.
TEST_F(Cycles, PageHasWhatReportHas) {
  const std::string page = path("page.html");
  const Ran r = run_asof("timeline --cycles -o " + page + " " + path("perf.data"));
  ASSERT_EQ(r.status, 0) << r.err;
  const auto meta = nlohmann::json::parse(page_meta(read_file(page)));
  size_t functions = 0, blocks = 0;
  std::set<nlohmann::json> calls, want_calls;
  std::map<std::string, nlohmann::json> want, got;
  std::set<nlohmann::json> want_blocks;
  for (const auto& j : objects("report --cycles --format jsonl --top 0")) {
    const auto bounds = [&] {
      return nlohmann::json{j["cycles_least"], j["cycles_most"], j["instructions_least"],
                            j["instructions_most"]};
    };
    if (j["type"] == "cycles") {
      EXPECT_EQ(meta["cycles"]["counted"], j["counted"]);
    }
    if (j["type"] == "function_cycles") want[j["name"]] = bounds();
    if (j["type"] == "block_cycles") want_blocks.insert(bounds());
    if (j["type"] == "call_cycles")
      want_calls.insert(
          nlohmann::json::array({j["caller"], j["callee"], j["calls"], j["cycles_least"], j["cycles_most"]}));
  }
  for (const auto& f : meta["functions"]) {
    if (!f.contains("cycles")) continue;
    ++functions;
    EXPECT_EQ(f["cycles"], want[f["name"]]) << f;
  }
  for (const auto& b : meta["blocks"]) {
    if (!b.contains("cycles")) continue;
    ++blocks;
    EXPECT_TRUE(want_blocks.contains(b["cycles"])) << b;
  }
  for (const auto& c : meta["cycles"]["calls"]) calls.insert(c);
  EXPECT_EQ(functions, 4U);
  EXPECT_GT(blocks, 4U);
  EXPECT_FALSE(calls.empty());
  EXPECT_EQ(calls, want_calls);
  EXPECT_EQ(run_asof("timeline --cycles -o " + path("t.csv") + " " + path("perf.data")).status, 1);
}

// In perf's form, beside the lines that perf prints. Numbers are compared with the truth: perf's own are wrong around
// packets of time, to which it gives cycles of branches that were not written yet.
TEST_F(Cycles, ScriptPrintsThemAsPerf) {
  const std::string options = "--itrace=b -F ip,addr,ipc";
  const Ran own = run_asof("script -q " + options + " " + path("perf.data"));
  ASSERT_EQ(own.status, 0) << own.err;
  size_t with = 0;
  uint64_t cycles = 0;
  static const std::regex form(
      "^ +[0-9a-f]+ => +[0-9a-f]+ \\t IPC: ([0-9]+\\.[0-9]{2}) \\(([0-9]+)/([0-9]+)\\) $");
  for (const std::string& line : lines_of(own.out)) {
    if (line.find("IPC") == std::string::npos) continue;
    std::smatch found;
    ASSERT_TRUE(std::regex_match(line, found, form)) << line;
    ++with;
    const uint64_t instructions = std::stoull(found[2].str()), counted = std::stoull(found[3].str());
    cycles += counted;
    EXPECT_EQ(found[1].str(),
              fmt::format("{}.{:02}", instructions / counted, instructions * 100 / counted % 100));
    // Straight code behind the branch may have been counted already.
    EXPECT_NEAR(static_cast<double>(counted), static_cast<double>(instructions * kSteppedCycles), 60) << line;
  }
  EXPECT_GT(with, 150U);
  EXPECT_GT(cycles, ran_.instructions * kSteppedCycles / 2);
  ASOF_SKIP_WITHOUT_PERF();
  static const std::regex ipc(" \\t IPC: [0-9.]+ \\([0-9/]+\\) $");
  const auto plain = [](const std::string& text) {
    auto lines = lines_of(text);
    for (std::string& line : lines) line = std::regex_replace(line, ipc, "");
    return lines;
  };
  EXPECT_EQ(plain(own.out), plain(output_of("perf script -i " + path("perf.data") + " " + options)));
}

// Instruction by instruction there is every count, also one that was taken where a branch was not; with A (approximate)
// they may come later, and there are no fewer.
TEST_F(Cycles, ScriptOfInstructionsHasEveryCount) {
  uint64_t counts = 0;
  for (const auto& j : objects("decode --cycles --format jsonl -F time,ip"))
    counts += j["type"] == "cyc" ? 1 : 0;
  uint64_t with[2] = {}, cycles[2] = {}, branches = 0;
  for (const int approximate : {0, 1}) {
    const Ran r = run_asof(fmt::format("script -q --itrace={}i0ns -F ip,ipc {}", approximate == 1 ? "A" : "",
                                       path("perf.data")));
    ASSERT_EQ(r.status, 0) << r.err;
    static const std::regex form(".*IPC: [0-9.]+ \\(([0-9]+)/([0-9]+)\\) $");
    for (const std::string& line : lines_of(r.out)) {
      std::smatch found;
      if (!std::regex_match(line, found, form)) continue;
      const uint64_t instructions = std::stoull(found[1].str()), counted = std::stoull(found[2].str());
      ++with[approximate];
      cycles[approximate] += counted;
      EXPECT_NEAR(static_cast<double>(counted), static_cast<double>(instructions * kSteppedCycles), 60)
          << line;
    }
  }
  for (const std::string& line :
       lines_of(run_asof("script -q --itrace=b -F ip,ipc " + path("perf.data")).out))
    branches += line.find("IPC") != std::string::npos ? 1 : 0;
  EXPECT_GT(with[0], branches);
  EXPECT_LE(with[0], counts);
  EXPECT_GE(with[0] + 2, counts);  // the first has nothing before it
  EXPECT_GE(with[1], with[0]);
  EXPECT_EQ(cycles[0], cycles[1]);
}

TEST(CyclesAbsent, IsSaid) {
  for (const char* verb :
       {"report --cycles ", "decode --cycles -o /dev/null ", "script -F +ipc -o /dev/null "}) {
    const Ran r = run_asof(verb + kDemo);
    EXPECT_EQ(r.status, 0);
    EXPECT_NE(r.err.find("I-DATA-013"), std::string::npos) << verb << r.err;
  }
  const Ran sql = run_asof("query \"SELECT count(*) FROM block_cycles\" -i " + kDemo);
  EXPECT_EQ(sql.out, "count(*)\n0\n");
  EXPECT_NE(sql.err.find("I-DATA-013"), std::string::npos) << sql.err;
  EXPECT_EQ(run_asof("report -q --cycles --strict " + kDemo).status, 3);
}

}  // namespace
}  // namespace asof::test
