// --pid, --tid and --comm: verbs that add up count what `asof decode` prints with the same filter.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

const std::string kArm64Demo = ASOF_TEST_DATA "/demo-arm64/perf.data";

struct Filter {
  std::string name, capture, options;
  friend void PrintTo(const Filter& f, std::ostream* out) { *out << f.capture << f.options; }
};

uint64_t number_before(const std::string& text, const std::string& word) {
  const size_t end = text.find(word);
  EXPECT_NE(end, std::string::npos) << text;
  if (end == std::string::npos) return 0;
  // "61 625"
  const auto is_digit = [&](size_t at) { return text[at] >= '0' && text[at] <= '9'; };
  size_t begin = end;
  while (begin > 1 && (is_digit(begin - 1) || (text[begin - 1] == ' ' && is_digit(begin - 2)))) --begin;
  std::string digits = text.substr(begin, end - begin);
  std::erase(digits, ' ');
  return std::stoull(digits);
}

uint64_t last_field(const std::string& line, char separator) {
  return std::stoull(line.substr(line.find_last_of(separator) + 1));
}

class TaskFilters : public ::testing::TestWithParam<Filter> {
 protected:
  Ran run(const std::string& verb) {
    Ran r = run_asof(verb + GetParam().options + " " + GetParam().capture);
    EXPECT_EQ(r.status, 0) << verb << r.err;
    return r;
  }
  uint64_t decoded() {
    if (decoded_ == 0) decoded_ = lines_of(run("decode -q -F ip").out).size();
    EXPECT_NE(decoded_, 0U);
    return decoded_;
  }

 private:
  uint64_t decoded_ = 0;
};

TEST_P(TaskFilters, Report) {
  uint64_t sum = 0, hot = 0;
  std::string line;
  for (const std::string& text : lines_of(run("report --top 0 --format jsonl").out)) {
    const auto o = nlohmann::json::parse(text);
    if (o["type"] == "confidence") sum += o["instructions"].get<uint64_t>();
    if (o["type"] == "hot") hot += o["instructions"].get<uint64_t>();
    if (o["type"] == "coverage") line = o["line"];
  }
  EXPECT_EQ(sum, decoded());
  EXPECT_EQ(hot, decoded());
  EXPECT_EQ(number_before(line, " of them selected"), decoded()) << line;
  EXPECT_GE(number_before(line, " instructions"), decoded()) << line;
}

TEST_P(TaskFilters, Coverage) {
  EXPECT_EQ(number_before(run("coverage --uncertain --format drcov -o /dev/null").err, " instructions count"),
            decoded());
}

// By the records of the arm64 demo thread 1 is on both CPUs at once, so its slices are of nobody there.
TEST_P(TaskFilters, Stacks) {
  if (GetParam().capture == kArm64Demo) return;
  uint64_t sum = 0;
  for (const std::string& line : lines_of(run("stacks --weight instructions").out))
    sum += last_field(line, ' ');
  EXPECT_EQ(sum, decoded());
}

TEST_P(TaskFilters, Timeline) {
  if (GetParam().capture == kArm64Demo) return;
  const TempDir dir;
  const std::string rows = dir.path() / "rows.jsonl";
  std::map<std::string, uint64_t> by_track;
  run("timeline -o " + rows);
  for (const std::string& line : lines_of(read_file(rows))) {
    const auto o = nlohmann::json::parse(line);
    if (o["type"] != "slice") continue;
    by_track[o["track"].get<std::string>().starts_with("CPU ") ? "cpu" : "thread"] +=
        o["self_instructions"].get<uint64_t>();
  }
  EXPECT_EQ(by_track["cpu"], decoded());
  EXPECT_EQ(by_track["thread"], decoded());
}

TEST_P(TaskFilters, Branches) {
  uint64_t sum = 0;
  for (const std::string& line : lines_of(run("branches -q").out)) {
    const size_t second = line.find(',', line.find(',') + 1);
    if (line.starts_with("0x")) sum += std::stoull(line.substr(second + 1));
  }
  uint64_t taken = 0;
  for (const std::string& line : lines_of(run("decode -q --itrace=b -F flags,ip").out))
    taken += line.find("hw int") == std::string::npos && line.find("tr strt") == std::string::npos &&
             line.find("tr end") == std::string::npos;
  EXPECT_GT(sum, 0U);
  EXPECT_EQ(sum, taken);
}

INSTANTIATE_TEST_SUITE_P(Demo, TaskFilters,
                         ::testing::Values(Filter{"Pid", kDemo, " --pid 1201"},
                                           Filter{"Tids", kDemo, " --tid 1201,1203"},
                                           Filter{"Comm", kDemo, " --comm 'work*'"},
                                           Filter{"NoName", kArm64Demo, " --comm :1"}),
                         [](const auto& info) { return info.param.name; });

TEST(TaskNames, AreThoseThatDecodePrints) {
  for (const auto& [capture, names] :
       {std::pair{kDemo, std::set<std::string>{"worker"}}, {kArm64Demo, std::set<std::string>{":1"}}}) {
    std::map<std::string, uint64_t> all;
    for (const std::string& line : lines_of(run_asof("decode -q -F comm " + capture).out)) {
      std::string name = line.substr(line.find_first_not_of(' '));
      name.erase(name.find_last_not_of(' ') + 1);
      ++all[name];
    }
    std::set<std::string> found;
    for (const auto& [name, count] : all) {
      found.insert(name);
      EXPECT_EQ(lines_of(run_asof("decode -q -F ip --comm '" + name + "' " + capture).out).size(), count)
          << name;
    }
    EXPECT_EQ(found, names);
    EXPECT_EQ(run_asof("decode -q -F ip --comm other " + capture).out, "");
  }
}

TEST(TaskNames, ChooseRecordsAndPackets) {
  for (const char* verb : {"events", "packets"}) {
    const auto lines = [&](const std::string& options) {
      const Ran r = run_asof(fmt::format("{} {} {}", verb, options, kDemo));
      EXPECT_EQ(r.status, 0) << r.err;
      return lines_of(r.out);
    };
    const auto workers = lines("--comm 'work*'"), one = lines("--comm worker --tid 1201");
    EXPECT_EQ(workers, lines("--tid 1201,1202,1203")) << verb;
    EXPECT_EQ(one, lines("--tid 1201")) << verb;
    EXPECT_LT(one.size(), workers.size()) << verb;
    EXPECT_GT(one.size(), 10U) << verb;
    const Ran none = run_asof(fmt::format("{} --comm wrker {}", verb, kDemo));
    EXPECT_NE(none.err.find("is named 'wrker'\n  hint: did you mean 'worker'"), std::string::npos)
        << none.err;
    EXPECT_EQ(none.out, "") << verb;
  }
}

TEST(TaskNames, ThatNothingHasAreSaid) {
  const TempDir dir;
  for (const std::string& verb : {std::string("decode"), std::string("report"), std::string("stacks"),
                                  std::string("branches"), "coverage -o " + (dir.path() / "a.info").string(),
                                  "timeline -o " + (dir.path() / "a.csv").string()}) {
    const Ran r = run_asof(verb + " --strict --comm wrker " + kDemo);
    EXPECT_EQ(r.status, 3) << verb << r.err;
    EXPECT_NE(r.err.find("--comm: no thread that was traced is named 'wrker'"), std::string::npos)
        << verb << r.err;
    EXPECT_NE(r.err.find("worker"), std::string::npos) << verb << r.err;
    EXPECT_NE(r.err.find("of what --comm selects, nothing ran"), std::string::npos) << verb << r.err;
    EXPECT_EQ(run_asof(verb + " --comm , " + kDemo).status, 1) << verb;
    EXPECT_EQ(run_asof(verb + " --pid x " + kDemo).status, 1) << verb;
  }
  EXPECT_EQ(run_asof("report --cycles --pid 1 " + kDemo).status, 1);
}

}  // namespace
}  // namespace asof::test
