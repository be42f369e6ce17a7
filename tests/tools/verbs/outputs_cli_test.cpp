// asof stacks, branches, and timeline's rows, each read back by a program or parser that is not asof's; the
// sums must be those of `asof query` and `asof decode` for the demo.
#include <fmt/format.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/temp_dir.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

bool installed(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1 </dev/null").c_str()) == 0;
}

// What a shell command prints, without the last line's end.
std::string output_of(const TempDir& dir, const std::string& command) {
  const std::string out = dir.path() / "output";
  EXPECT_EQ(std::system((command + " >" + out).c_str()), 0) << command;
  std::string text = read_file(out);
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

std::string ask(const std::string& sql) {
  const Ran r = run_asof("query \"" + sql + "\" -i " + kDemo);
  EXPECT_EQ(r.status, 0) << r.err;
  const auto lines = lines_of(r.out);
  return lines.size() < 2 ? std::string() : lines[1];
}
const std::string kOfCpus = " FROM call JOIN tracks ON tracks.id = track WHERE tracks.kind = 'cpu'";

std::string stacks(const TempDir& dir, const std::string& options) {
  const std::string file = dir.path() / "folded";
  const Ran r = run_asof("stacks -o " + file + " " + options + " " + kDemo);
  EXPECT_EQ(r.status, 0) << r.err;
  return file;
}

// A bundle without times, whose trace is no packets.
std::string undecodable_bundle(const TempDir& dir) {
  std::ofstream(dir / "trace.pt") << std::string(64, 'x');
  std::ofstream(dir / "text.img") << std::string(16, '\x90');
  std::ofstream(dir / "bundle.json") << R"({"format": "asof-bundle", "version": 1, "arch": "x86-64",
      "streams": [{"file": "trace.pt", "cpu": 0}], "text": [{"file": "text.img", "address": "0x1000"}]})";
  return dir / "bundle.json";
}

TEST(Stacks, WithoutTimeAreNotWeighedByIt) {
  const TempDir dir;
  const std::string bundle = undecodable_bundle(dir);
  const Ran ran = run_asof("stacks " + bundle);
  EXPECT_EQ(ran.status, 1);
  EXPECT_NE(ran.err.find("no time to weigh stacks by"), std::string::npos) << ran.err;
  EXPECT_EQ(run_asof("stacks --weight calls " + bundle).err.find("no time"), std::string::npos);
}

// Where no output says why there is nothing in it, the verb names the one that does.
TEST(NothingDecoded, IsSaid) {
  const TempDir dir;
  const std::string bundle = undecodable_bundle(dir);
  for (const char* verb : {"decode -q ", "query 'SELECT count(*) FROM calls' -i ",
                           "stacks --weight calls -i ", "branches -i "}) {
    const Ran ran = run_asof(verb + bundle);
    EXPECT_EQ(ran.status, 2) << verb << ran.err;
    EXPECT_NE(ran.err.find("nothing of the trace could be decoded; 'asof report' says why"),
              std::string::npos)
        << verb << ran.err;
  }
  EXPECT_NE(run_asof("report " + bundle).out.find("E-DATA-"), std::string::npos);
}

TEST(Timeline, WithoutAFileTheNameIsThatOfTheFormat) {
  const TempDir dir;
  for (const auto& [options, name] :
       {std::pair("--format csv", "asof.csv"), std::pair("--format chrome", "asof.json"),
        std::pair("", "asof.pftrace")}) {
    const std::string capture = std::filesystem::absolute(ASOF_TEST_DATA "/demo-arm64/perf.data");
    const std::string command = fmt::format("cd {} && {} timeline -q {} {} 2>err", dir.path().string(),
                                            ASOF_BINARY, options, capture);
    EXPECT_EQ(std::system(command.c_str()), 0) << read_file(dir / "err");
    EXPECT_TRUE(std::filesystem::exists(dir / name)) << name;
  }
}

// The last word of each line is its weight, as readers of stackcollapse's format expect.
TEST(Stacks, SumsAreThoseOfTheQuery) {
  if (!installed("awk 'BEGIN {}'")) GTEST_SKIP() << "awk is not installed";
  const TempDir dir;
  const auto sum = [&](const std::string& options) {
    return output_of(dir, "awk '{ s += $NF } END { printf \"%d\", s }' " + stacks(dir, options));
  };
  for (const std::string by : {"all", "cpu"}) {
    EXPECT_EQ(sum("--weight instructions --by " + by), "61625");
    // The time in which CPUs had a known stack, without the time in which the flow is missing.
    EXPECT_EQ(
        std::stoul(sum("--weight ns --by " + by)) + std::stoul(ask("SELECT sum(end - begin) FROM gaps")),
        std::stoul(ask("SELECT sum(call.end - call.begin)" + kOfCpus + " AND parent = 0")));
    EXPECT_EQ(sum("--weight calls --by " + by),
              ask("SELECT count(*)" + kOfCpus +
                  " AND flags NOT LIKE '%resumed%' AND flags NOT LIKE '%began-before%'"));
  }
}

TEST(Stacks, FunctionsHaveTheirOwnInstructions) {
  if (!installed("awk 'BEGIN {}'")) GTEST_SKIP() << "awk is not installed";
  const TempDir dir;
  const std::string file = stacks(dir, "--weight instructions");
  const std::string own = output_of(
      dir,
      "awk '{ n = $NF; sub(/ [0-9]+$/, \"\"); k = split($0, f, \";\"); s[f[k]] += n } END { for (i in s) if "
      "(s[i] > b) { b = s[i]; name = i } printf \"%s\\t%d\", name, b }' " +
          file);
  EXPECT_EQ(own, ask("SELECT call.name, sum(self_instructions)" + kOfCpus +
                     " GROUP BY call.name ORDER BY 2 DESC LIMIT 1"));
}

TEST(Stacks, SameForAnyNumberOfWorkersAndEachStackOnce) {
  const TempDir dir;
  const std::string one = read_file(stacks(dir, "-j 1 --versions --by thread"));
  EXPECT_EQ(one, read_file(stacks(dir, "-j 5 --versions --by thread")));
  EXPECT_NE(one.find("\xc2\xb7v2"), std::string::npos) << "functions have versions";
  std::map<std::string, int> seen;
  for (const std::string& line : lines_of(one)) ++seen[line.substr(0, line.rfind(' '))];
  for (const auto& [stack, times] : seen) EXPECT_EQ(times, 1) << stack;
}

// Branches as `asof decode` prints them, without starts and stops of tracing and without interrupts.
std::map<std::pair<std::string, std::string>, uint64_t> decoded_branches() {
  const Ran r = run_asof("decode -q --itrace b --format jsonl -F cpu,time,ip,flags " + kDemo);
  EXPECT_EQ(r.status, 0) << r.err;
  std::map<std::pair<std::string, std::string>, uint64_t> out;
  for (const std::string& line : lines_of(r.out)) {
    const auto j = nlohmann::json::parse(line);
    if (j["type"] != "branch") continue;
    const std::string flags = j.value("flags", "");
    if (flags.starts_with("tr ") || flags.starts_with("hw ")) continue;
    ++out[{j.value("ip", "?"), j.value("to_ip", "?")}];
  }
  return out;
}

std::string branches(const TempDir& dir, const std::string& options) {
  const std::string file = dir.path() / "branches";
  const Ran r = run_asof("branches -o " + file + " " + options + " " + kDemo);
  EXPECT_EQ(r.status, 0) << r.err;
  return file;
}

TEST(Branches, TableHasWhatDecodePrints) {
  if (!installed("python3 -c 'import csv'")) GTEST_SKIP() << "python3 is not installed";
  const TempDir dir;
  const std::string rows =
      output_of(dir,
                "python3 -c \"import csv,sys; [print(r['from'], r['to'], r['count']) for r in "
                "csv.DictReader(open('" +
                    branches(dir, "") + "'))]\"");
  std::map<std::pair<std::string, std::string>, uint64_t> read;
  for (const std::string& line : lines_of(rows)) {
    const size_t a = line.find(' '), b = line.rfind(' ');
    read[{line.substr(0, a), line.substr(a + 1, b - a - 1)}] += std::stoull(line.substr(b));
  }
  EXPECT_GT(read.size(), 100U);
  EXPECT_EQ(read, decoded_branches());
}

TEST(Branches, EveryFormatHasEveryBranch) {
  if (!installed("awk 'BEGIN {}'")) GTEST_SKIP() << "awk is not installed";
  const TempDir dir;
  uint64_t all = 0;
  for (const auto& [ends, count] : decoded_branches()) all += count;
  const std::string want = std::to_string(all);
  EXPECT_EQ(output_of(dir, "awk '/^B / { s += $4 } END { printf \"%d\", s }' " +
                               branches(dir, "--format bolt-preagg")),
            want);
  EXPECT_EQ(output_of(dir, "awk '!/^PERF_RECORD/ { s += NF - 1 } END { printf \"%d\", s }' " +
                               branches(dir, "--format perf-script")),
            want);
  // In a stack, newest first, code between a target and the next branch goes forward and is short.
  EXPECT_EQ(
      output_of(dir,
                "awk '!/^PERF_RECORD/ { for (i = 2; i < NF; ++i) { split($i, a, \"/\"); split($(i + 1), b, "
                "\"/\"); if "
                "(length(a[1]) != length(b[2]) || a[1] < b[2]) ++bad } } END { printf \"%d\", bad }' " +
                    branches(dir, "--format perf-script")),
      "0");
  EXPECT_EQ(
      output_of(
          dir,
          "awk '/^[Ff] / && (length($2) != length($3) || $3 < $2) { ++bad } END { printf \"%d\", bad }' " +
              branches(dir, "--format bolt-preagg")),
      "0");
}

TEST(Branches, SameForAnyNumberOfWorkers) {
  const TempDir dir;
  for (const std::string format : {"csv", "bolt-preagg", "perf-script"}) {
    const std::string one = read_file(branches(dir, "-j 1 --format " + format));
    EXPECT_EQ(one, read_file(branches(dir, "-j 5 --format " + format)));
    EXPECT_FALSE(one.empty());
  }
}

TEST(TimelineRows, CsvAndJsonLinesHaveTheSlicesOfTheQuery) {
  const TempDir dir;
  const std::string want =
      ask("SELECT count(*) || ' ' || sum(self_instructions) || ' ' || sum(begin % 1000003) FROM calls");
  const std::string json = dir.path() / "out.jsonl";
  ASSERT_EQ(run_asof("timeline -o " + json + " " + kDemo).status, 0);
  uint64_t count = 0, instructions = 0, begins = 0;
  for (const std::string& line : lines_of(read_file(json))) {
    const auto j = nlohmann::json::parse(line);
    ++count;
    instructions += j["self_instructions"].get<uint64_t>();
    begins += j["begin"].get<uint64_t>() % 1000003;
  }
  EXPECT_EQ(fmt::format("{} {} {}", count, instructions, begins), want);
  if (!installed("python3 -c 'import csv'")) GTEST_SKIP() << "python3 is not installed: CSV was not read";
  const std::string table = dir.path() / "out.csv";
  ASSERT_EQ(run_asof("timeline -o " + table + " " + kDemo).status, 0);
  EXPECT_EQ(
      output_of(dir,
                "python3 -c \"import csv; r = list(csv.DictReader(open('" + table +
                    "'))); print(len(r), sum(int(x['self_instructions']) for x in r), sum(int(x['begin']) % "
                    "1000003 for x in r))\""),
      want);
}

TEST(TimelineRows, DatabaseIsThatOfTheQuery) {
  if (!installed("sqlite3 --version")) GTEST_SKIP() << "sqlite3 is not installed";
  const TempDir dir;
  const std::string file = dir.path() / "out.db";
  ASSERT_EQ(run_asof("timeline -o " + file + " " + kDemo).status, 0);
  const std::string sql =
      "SELECT count(*) || ' ' || sum(instructions) || ' ' || sum(id * begin % 1000003) FROM calls";
  EXPECT_EQ(output_of(dir, "sqlite3 " + file + " \"" + sql + "\""), ask(sql));
  EXPECT_EQ(run_asof("timeline -o " + file + ".gz " + kDemo).status, 1);
  EXPECT_EQ(run_asof("timeline --detail insn --time 0%-10% -o out.csv " + kDemo).status, 1);
}

// Walks the tables of a Firefox profile as its viewer does, and prints folded stacks; weights in ms are
// printed in ns.
constexpr const char* kUnfold = R"(
import json, sys
from decimal import Decimal
profile = json.load(open(sys.argv[1]), parse_float=Decimal)
assert profile['meta']['preprocessedProfileVersion'] == 48
for t in profile['threads']:
    for name in ('samples', 'stackTable', 'frameTable', 'funcTable', 'resourceTable', 'nativeSymbols', 'markers'):
        for key, column in t[name].items():
            if isinstance(column, list): assert len(column) == t[name]['length'], (name, key)
    s, stacks = t['samples'], t['stackTable']
    assert all(a <= b for a, b in zip(s['time'], s['time'][1:]))
    for stack, weight in zip(s['stack'], s['weight']):
        names = []
        while stack is not None:
            assert stacks['prefix'][stack] is None or stacks['prefix'][stack] < stack
            func = t['frameTable']['func'][stacks['frame'][stack]]
            names.append(t['stringArray'][t['funcTable']['name'][func]])
            stack = stacks['prefix'][stack]
        if t['name'] != 'all': names.append(t['name'])
        scale = 1000000 if s['weightType'] == 'tracing-ms' else 1
        print(';'.join(reversed(names)), int(weight * scale))
)";

TEST(Stacks, AreTheFirefoxProfiles) {
  if (!installed("python3 -c 'import json'")) GTEST_SKIP() << "python3 is not installed";
  const TempDir dir;
  const std::string script = dir.path() / "unfold.py", profile = dir.path() / "profile.json";
  std::ofstream(script) << kUnfold;
  for (const std::string options : {"", "--weight instructions", "--weight calls --by cpu", "--by thread"}) {
    const Ran r = run_asof("stacks -o " + profile + " " + options + " " + kDemo);
    ASSERT_EQ(r.status, 0) << r.err;
    const std::string folded = read_file(stacks(dir, options));
    EXPECT_EQ(output_of(dir, "python3 " + script + " " + profile) + "\n", folded) << options;
    EXPECT_GT(lines_of(folded).size(), 20U);
  }
}

// Sums of a column of `asof diff` as CSV, by python's reader.
std::string diff_sums(const TempDir& dir, const std::string& options) {
  const std::string file = dir.path() / "diff.csv";
  const std::string demo = ASOF_TEST_DATA "/demo/perf.data", symfs = " --symfs " ASOF_TEST_DATA "/demo/symfs";
  const Ran r = run_asof("diff " + demo + symfs + " --format csv -o " + file + " " + options);
  EXPECT_EQ(r.status, 0) << r.err;
  return output_of(
      dir, "python3 -c \"import csv; r = list(csv.DictReader(open('" + file +
               "'))); print(*[sum(int(x[k]) for x in r) for k in ('a_instructions', 'b_instructions', "
               "'a_ns', 'b_ns')], sum(x['a_ns'] != x['b_ns'] or x['a_entries'] != x['b_entries'] or "
               "x['a_instructions'] != x['b_instructions'] for x in r))\"");
}

TEST(Diff, CaptureWithItselfHasNoDifference) {
  if (!installed("python3 -c 'import csv'")) GTEST_SKIP() << "python3 is not installed";
  const TempDir dir;
  const auto sums = diff_sums(dir, ASOF_TEST_DATA "/demo/perf.data");
  EXPECT_TRUE(sums.starts_with("61625 61625 ")) << sums;
  EXPECT_TRUE(sums.ends_with(" 0")) << sums;
}

TEST(Diff, PartsOfTimeAddUp) {
  if (!installed("python3 -c 'import csv'")) GTEST_SKIP() << "python3 is not installed";
  const TempDir dir;
  uint64_t whole_a = 0, whole_ns = 0, a = 0, b = 0, a_ns = 0, b_ns = 0, differ = 0, skip = 0;
  std::istringstream(diff_sums(dir, "--time , --time ,")) >> whole_a >> skip >> whole_ns;
  // The parts meet between two instants of the trace, so that no instant is in both.
  std::istringstream(diff_sums(dir, "--time ,6.000051001 --time 6.000051002,")) >> a >> b >> a_ns >> b_ns >>
      differ;
  EXPECT_EQ(whole_a, 61625U);
  EXPECT_EQ(a + b, whole_a);
  EXPECT_GT(a, 0U);
  EXPECT_GT(b, 0U);
  EXPECT_GT(differ, 0U);
  // Each CPU's clock passes the nanosecond between the parts once.
  EXPECT_LE(a_ns + b_ns, whole_ns);
  EXPECT_GE(a_ns + b_ns + 2, whole_ns);
}

TEST(Diff, InstructionsAreThoseOfTheSlices) {
  const TempDir dir;
  const std::string demo = ASOF_TEST_DATA "/demo/perf.data";
  const Ran r =
      run_asof("diff " + demo + " " + demo + " --symfs " ASOF_TEST_DATA "/demo/symfs --format jsonl");
  ASSERT_EQ(r.status, 0) << r.err;
  std::map<std::string, uint64_t> own;
  for (const std::string& line : lines_of(r.out)) {
    const auto j = nlohmann::json::parse(line);
    own[j["function"].get<std::string>()] += j["a_instructions"].get<uint64_t>();
  }
  const std::string sql =
      "SELECT call.name, sum(self_instructions)" + kOfCpus + " GROUP BY call.name ORDER BY 2 DESC LIMIT 10";
  const auto rows = lines_of(run_asof("query \"" + sql + "\" -i " + kDemo).out);
  ASSERT_EQ(rows.size(), 11U);
  for (size_t i = 1; i < rows.size(); ++i) {
    const size_t tab = rows[i].find('\t');
    EXPECT_EQ(std::to_string(own[rows[i].substr(0, tab)]), rows[i].substr(tab + 1)) << rows[i];
  }
  EXPECT_EQ(run_asof("diff " + demo).status, 1) << "one capture and no times";
}

// Functions come from steps, calls and paths from stacks: two computations of one sum. Also with a time
// range.
TEST(Diff, FunctionsCallsAndPathsHaveOneSum) {
  for (const std::string capture : {"demo", "demo-arm64"}) {
    const std::string data =
        ASOF_TEST_DATA "/" + capture + "/perf.data --symfs " ASOF_TEST_DATA "/demo/symfs";
    uint64_t sums[3][4] = {};
    const char* const kinds[] = {"functions", "calls", "paths"};
    for (int kind = 0; kind < 3; ++kind) {
      const Ran r = run_asof(
          fmt::format("diff {} --time ,6.000041 --time 6.000041001,6.000060 --format jsonl --rows {} -q",
                      data, kinds[kind]));
      ASSERT_EQ(r.status, 0) << r.err;
      for (const std::string& line : lines_of(r.out)) {
        const auto j = nlohmann::json::parse(line);
        int n = 0;
        for (const char* key : {"a_ns", "b_ns", "a_instructions", "b_instructions"})
          sums[kind][n++] += j[key].get<uint64_t>();
      }
    }
    for (int n = 0; n < 4; ++n) {
      EXPECT_GT(sums[0][n], 1000U) << capture;
      EXPECT_EQ(sums[0][n], sums[1][n]) << capture << n;
      EXPECT_EQ(sums[0][n], sums[2][n]) << capture << n;
    }
  }
}

// The paths are those of `asof stacks`, and their counts are its calls.
TEST(Diff, PathsAreTheStacks) {
  const TempDir dir;
  std::map<std::string, uint64_t> paths;
  const std::string demo = ASOF_TEST_DATA "/demo/perf.data", symfs = " --symfs " ASOF_TEST_DATA "/demo/symfs";
  const Ran r = run_asof("diff " + demo + " " + demo + symfs + " --rows paths --by calls --format jsonl -q");
  ASSERT_EQ(r.status, 0) << r.err;
  for (const std::string& line : lines_of(r.out)) {
    const auto j = nlohmann::json::parse(line);
    EXPECT_EQ(j["type"], "path");
    EXPECT_EQ(j["a_calls"], j["b_calls"]);
    if (j["a_calls"] != 0) paths[j["path"].get<std::string>()] = j["a_calls"].get<uint64_t>();
  }
  std::map<std::string, uint64_t> folded, calls, edges;
  for (const std::string& line : lines_of(read_file(stacks(dir, "--weight calls")))) {
    const size_t at = line.rfind(' ');
    const std::string path = line.substr(0, at);
    folded[path] = std::stoul(line.substr(at + 1));
    const size_t last = path.rfind(';');
    const size_t before = last == std::string::npos ? last : path.rfind(';', last - 1);
    const std::string caller = last == std::string::npos ? "" : path.substr(before + 1, last - before - 1);
    calls[caller + " > " + path.substr(last + 1)] += folded[path];
  }
  EXPECT_EQ(paths, folded);
  EXPECT_GT(paths.size(), 30U);
  const Ran c = run_asof("diff " + demo + " " + demo + symfs + " --rows calls --format jsonl -q");
  for (const std::string& line : lines_of(c.out)) {
    const auto j = nlohmann::json::parse(line);
    const std::string edge = j["caller"].get<std::string>() + " > " + j["callee"].get<std::string>();
    if (j["a_calls"] != 0) edges[edge] = j["a_calls"].get<uint64_t>();
  }
  EXPECT_EQ(edges, calls);
}

}  // namespace
}  // namespace asof::test
