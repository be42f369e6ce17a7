// The named queries against figures that are computed here, from the slices of `asof timeline`, the lines of
// `asof decode` and `asof events`, and from single rows.
#include "tools/query/named_queries.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <sstream>

#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

using Row = std::vector<std::string>;
using Durations = std::map<std::string, std::vector<int64_t>>;
const std::string kData = ASOF_TEST_DATA;

Row split(const std::string& line, char at) {
  Row out(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') quoted = !quoted;
    if (c == at && !quoted) {
      out.emplace_back();
    } else if (c != '"') {
      out.back() += c;
    }
  }
  return out;
}

std::vector<Row> rows_of(const std::string& arguments) {
  const Ran r = run_asof("query -q " + arguments);
  EXPECT_EQ(r.status, 0) << arguments << r.err;
  std::vector<Row> rows;
  for (const std::string& line : lines_of(r.out)) rows.push_back(split(line, '\t'));
  if (!rows.empty()) rows.erase(rows.begin());
  return rows;
}
std::vector<Row> named(const std::string& name, const std::string& input = kDemo) {
  return rows_of("--named " + name + " -i " + input);
}

struct Slice {
  int64_t id, parent, begin, end, instructions, self;
  std::string kind, track, function, type, version, flags;
  bool has(const std::string& flag) const { return flags.find(flag) != std::string::npos; }
  bool whole() const {
    return !has("began-before") && !has("end-unknown") && !has("clipped") && !has("unbalanced");
  }
};

// As `asof timeline` writes them, by another way than tables.
std::vector<Slice> slices_of(const std::string& input = kDemo) {
  const TempDir dir;
  const std::string file = (dir.path() / "slices.csv").string();
  EXPECT_EQ(run_asof("timeline -q -o " + file + " -i " + input).status, 0);
  std::vector<Slice> out;
  for (const std::string& line : lines_of(read_file(file))) {
    const Row r = split(line, ',');
    if (r[0] == "id") continue;
    const auto n = [&](size_t i) { return std::atoll(r[i].c_str()); };
    out.push_back({n(0), n(1), n(6), n(7), n(12), n(13), r[2], r[3], r[8], r[9], r[11], r[16]});
  }
  std::ranges::sort(out, {}, &Slice::id);
  return out;
}

// A function and those it jumped to, up to the return.
std::vector<std::vector<Slice>> chains_of(const std::vector<Slice>& slices, const std::string& kind) {
  std::map<std::pair<std::string, int64_t>, size_t> open;
  std::vector<std::vector<Slice>> chains;
  for (const Slice& s : slices) {
    if (s.kind != kind) continue;
    const auto at = open.find({s.track, s.parent});
    if (at != open.end() && s.has("tail")) {
      chains[at->second].push_back(s);
    } else {
      open[{s.track, s.parent}] = chains.size();
      chains.push_back({s});
    }
  }
  return chains;
}

// From the first slice of a chain that `wanted` names to its end.
template <class Wanted>
Durations durations_of(const std::vector<Slice>& slices, const std::string& kind, const Wanted& wanted) {
  Durations out;
  for (const auto& chain : chains_of(slices, kind)) {
    const auto first = std::ranges::find_if(chain, [&](const Slice& s) { return !wanted(s).empty(); });
    if (first == chain.end() || !std::all_of(first, chain.end(), [](const Slice& s) { return s.whole(); }))
      continue;
    int64_t begin = INT64_MAX, end = INT64_MIN;
    for (auto s = first; s != chain.end(); ++s) {
      begin = std::min(begin, s->begin);
      end = std::max(end, s->end);
    }
    out[wanted(*first)].push_back(end - begin);
  }
  return out;
}

// Nearest rank: the least value that so many percent do not exceed.
int64_t percentile(const std::vector<int64_t>& sorted, size_t percent) {
  size_t rank = 1;
  while (rank * 100 < sorted.size() * percent) ++rank;
  return sorted[rank - 1];
}

void expect_latencies(const std::vector<Row>& rows, Durations durations) {
  EXPECT_EQ(rows.size(), durations.size());
  EXPECT_FALSE(rows.empty());
  for (const Row& row : rows) {
    auto& d = durations[row[0]];
    ASSERT_FALSE(d.empty()) << row[0];
    std::ranges::sort(d);
    const std::vector<int64_t> expected = {static_cast<int64_t>(d.size()),
                                           d.front(),
                                           percentile(d, 50),
                                           percentile(d, 90),
                                           percentile(d, 99),
                                           d.back(),
                                           std::accumulate(d.begin(), d.end(), int64_t{0})};
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_EQ(row[i + 1], std::to_string(expected[i])) << row[0] << i;
  }
}

TEST(NamedQueries, AllAreListedAndRun) {
  const auto list = lines_of(run_asof("query --named list").out);
  ASSERT_EQ(list.size(), named_queries().size());
  EXPECT_GE(list.size(), 12U);
  std::set<std::string_view> names;
  for (size_t i = 0; i < list.size(); ++i) {
    const NamedQuery& q = named_queries()[i];
    EXPECT_TRUE(names.insert(q.name).second);
    EXPECT_TRUE(list[i].starts_with(std::string(q.name) + " ") && list[i].ends_with(q.meaning)) << list[i];
    const Ran sql = run_asof("query --show-sql --named " + std::string(q.name));
    EXPECT_EQ(sql.out, std::string(q.sql) + "\n");
    const Ran r = run_asof("query -q --named " + std::string(q.name) + " " + kDemo + " -j2");
    EXPECT_EQ(r.status, 0) << q.name << r.err;
    EXPECT_EQ(r.out, run_asof("query -q --named " + std::string(q.name) + " " + kDemo + " -j1").out);
  }
  EXPECT_EQ(run_asof("query --named nothing").status, 1);
}

TEST(NamedQueries, FunctionsAndCallers) {
  const auto slices = slices_of();
  std::map<std::string, int64_t> self;
  std::map<int64_t, std::string> names;
  for (const Slice& s : slices) names[s.id] = s.function;
  std::map<std::pair<std::string, std::string>, int64_t> calls;
  for (const Slice& s : slices) {
    if (s.kind != "cpu") continue;
    self[s.function] += s.self;
    if (s.parent != 0 && !s.has("resumed") && !s.has("began-before")) ++calls[{names[s.parent], s.function}];
  }
  const auto functions = named("functions");
  ASSERT_EQ(functions.size(), std::min<size_t>(50, self.size()));
  int64_t sum = 0;
  for (const Row& r : functions) {
    EXPECT_EQ(r[2], std::to_string(self[r[0]])) << r[0];
    sum += self[r[0]];
  }
  EXPECT_GT(sum, 61625 / 2) << "of asof digest's instructions";
  const auto callers = named("callers");
  int64_t most = 0;
  for (const auto& [pair, n] : calls) most = std::max(most, n);
  EXPECT_EQ(callers.at(0)[2], std::to_string(most));
  for (const Row& r : callers) EXPECT_EQ(r[2], std::to_string(calls[std::pair(r[0], r[1])])) << r[0];
}

std::string syscall_name(const Slice& s) {
  for (const std::string prefix : {"__x64_sys_", "__ia32_sys_", "__arm64_sys_", "__do_sys_"})
    if (s.function.starts_with(prefix)) return s.function.substr(prefix.size());
  return {};
}

TEST(NamedQueries, SystemCalls) {
  for (const std::string& input :
       {kDemo, kData + "/board-x86/capture.tar.xz", kData + "/board-arm64/capture.tar.xz"})
    expect_latencies(named("syscall-latency", input), durations_of(slices_of(input), "thread", syscall_name));
}

TEST(NamedQueries, InterruptsAndLocks) {
  const std::string board = kData + "/board-x86/capture.tar.xz";
  for (const std::string& input : {kDemo, board}) {
    Durations irqs;
    for (const auto& chain : chains_of(slices_of(input), "cpu")) {
      if (!chain.front().has("async")) continue;
      const bool whole = std::ranges::all_of(
          chain, [](const Slice& s) { return s.whole() && !s.has("switched-out") && !s.has("resumed"); });
      const auto named =
          std::ranges::find_if(chain, [](const Slice& s) { return s.function != "irq_entries_start"; });
      int64_t end = INT64_MIN;
      for (const Slice& s : chain) end = std::max(end, s.end);
      if (whole) irqs[named->function].push_back(end - chain.front().begin);
    }
    expect_latencies(named("irq-latency", input), irqs);
  }
  expect_latencies(named("lock-wait", board), durations_of(slices_of(board), "thread", [](const Slice& s) {
                     const bool slow = s.function.find("queued_spin_lock_slowpath") != std::string::npos ||
                                       s.function.starts_with("__mutex_lock_slowpath");
                     return slow ? s.function : std::string();
                   }));
}

TEST(NamedQueries, BpfPrograms) {
  Durations programs;
  for (const Slice& s : slices_of()) {
    if (s.kind == "cpu" && s.type == "bpf" && s.whole() && !s.has("switched-out") && !s.has("resumed"))
      programs[s.function].push_back(s.end - s.begin);
  }
  auto rows = named("bpf");
  for (Row& r : rows) r[0] = r[0].substr(0, r[0].find(" id "));
  expect_latencies(rows, programs);
}

TEST(NamedQueries, ChangesOfText) {
  const auto records = lines_of(run_asof("events --type TEXT_POKE -i " + kDemo).out);
  int64_t changes = 0;
  for (const Row& r : named("text-changes")) changes += std::atoll(r[2].c_str());
  EXPECT_EQ(changes, static_cast<int64_t>(records.size()));
  Durations by_cpu;
  size_t visits = 0;
  for (const Row& r :
       rows_of("\"SELECT v.cpu, v.first_new, p.time FROM poke_visits v JOIN pokes p ON p.id = v.poke\" -i " +
               kDemo)) {
    ++visits;
    if (!r[1].empty()) by_cpu[r[0]].push_back(std::atoll(r[1].c_str()) - std::atoll(r[2].c_str()));
  }
  expect_latencies(named("poke-latency"), by_cpu);
  EXPECT_EQ(named("poke-visits").size(), visits);
  // New code never runs before the change begins: its breakpoint is there first.
  for (const Row& r : named("poke-visits"))
    EXPECT_TRUE(r[6].empty() || std::atoll(r[6].c_str()) > -20'000) << r[0];
  std::map<std::string, std::map<std::string, int64_t>> versions;
  for (const Slice& s : slices_of())
    if (s.kind == "cpu") ++versions[s.function][s.version];
  size_t rows = 0;
  for (const auto& [function, of] : versions) rows += of.size() > 1 ? of.size() : 0;
  const auto shown = named("versions");
  EXPECT_EQ(shown.size(), rows);
  for (const Row& r : shown) EXPECT_EQ(r[2], std::to_string(versions[r[0]][r[1]])) << r[0];
}

TEST(NamedQueries, GapsAndProcesses) {
  const auto gaps = named("gaps");
  ASSERT_EQ(gaps.size(), 1U);
  EXPECT_EQ(gaps[0][0], "E-LOST-103");
  const Ran decode = run_asof("decode -i " + kDemo, "| tail -1");
  EXPECT_NE(decode.err.find("E-LOST-103"), std::string::npos);
  std::map<std::string, int64_t> on_cpu;
  Durations lengths;
  int64_t all = 0;
  for (const Row& r : rows_of("\"SELECT pid, comm, begin, end, flags FROM runs\" -i " + kDemo)) {
    const int64_t ns = std::atoll(r[3].c_str()) - std::atoll(r[2].c_str());
    on_cpu[r[0]] += ns;
    all += ns;
    if (r[4].empty()) lengths[r[1] + " " + r[0]].push_back(ns);
  }
  const auto processes = named("processes");
  EXPECT_EQ(processes.size(), on_cpu.size());
  for (const Row& r : processes) {
    EXPECT_EQ(r[5], std::to_string(on_cpu[r[0]])) << r[0];
    EXPECT_NEAR(std::stod(r[6]), 100.0 * static_cast<double>(on_cpu[r[0]]) / static_cast<double>(all), 0.006);
  }
  expect_latencies(named("run-length"), lengths);
}

TEST(NamedQueries, UnsureAndHotCode) {
  std::map<std::string, int64_t> unsure;
  for (const std::string& line : lines_of(run_asof("decode -q -F sym,conf -i " + kDemo).out)) {
    std::istringstream words(line);
    std::string symbol, confidence;
    words >> symbol >> confidence;
    if (confidence == "ambiguous") ++unsure[symbol];
  }
  const auto rows = named("ambiguous");
  EXPECT_EQ(rows.size(), unsure.size());
  for (const Row& r : rows) EXPECT_EQ(r[2], std::to_string(unsure[r[0]])) << r[0];
  const auto hot = named("hot-code");
  ASSERT_EQ(hot.size(), 50U);
  std::map<std::string, int64_t> runs;
  for (const Row& r : rows_of("\"SELECT printf('%x', c.address) || c.symbol || c.source, c.instructions FROM "
                              "blocks b JOIN code c ON c.id = "
                              "b.code\" -i " +
                              kDemo))
    runs[r[0] + " " + r[1]] += std::atoll(r[1].c_str());
  std::vector<int64_t> most;
  for (const auto& [code, instructions] : runs) most.push_back(instructions);
  std::ranges::sort(most, std::greater<>());
  EXPECT_EQ(hot[0][3], std::to_string(most[0]));
}

}  // namespace
}  // namespace asof::test
