// What two verbs say of the same is the same.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/tools/recordings.h"

namespace asof::test {
namespace {

using Counts = std::map<std::string, uint64_t>;

std::string value_of(const std::string& line, const std::string& key) {
  const size_t at = line.find("\"" + key + "\":");
  if (at == std::string::npos) return {};
  size_t begin = at + key.size() + 3, end = begin;
  if (line[begin] == '"') {
    end = line.find('"', ++begin);
  } else {
    end = line.find_first_of(",}", begin);
  }
  return line.substr(begin, end - begin);
}

class VerbsAgree : public RecordingTest {
 protected:
  // Of large recordings a part is enough.
  std::string part() const {
    return std::string(GetParam().name).starts_with("demo") ? "" : "--time 99%-100%";
  }
  std::vector<std::string> run(const std::string& verb, const std::string& window = {}) const {
    const std::string files = std::filesystem::exists(symfs()) ? fmt::format("--symfs '{}'", symfs()) : "";
    const Ran ran = run_asof(fmt::format("{} -q {} {} -i '{}'", verb, window, files, path()));
    EXPECT_EQ(ran.status, 0) << verb << ran.err;
    return lines_of(ran.out);
  }
};

TEST_P(VerbsAgree, KindsOfBranches) {
  Counts printed, counted, queried;
  for (const std::string& line : run("decode --format jsonl --itrace b -F +flags", part())) {
    const std::string flags = value_of(line, "flags"), to = value_of(line, "to_ip");
    if (flags.empty() || flags == "hw int" || flags.starts_with("tr ") || to == "0x0") continue;
    ++printed[flags];
  }
  bool first = true;
  for (const std::string& line : run("branches", part())) {
    if (std::exchange(first, false)) continue;
    const size_t count = line.find(',', line.find(',') + 1) + 1, kind = line.find(',', count) + 1;
    counted[line.substr(kind, line.find(',', kind) - kind)] += std::stoull(line.substr(count));
  }
  for (const std::string& line :
       run("query --format csv 'SELECT kind, count(*) FROM branches GROUP BY kind'", part())) {
    const size_t comma = line.find(',');
    if (line.starts_with("kind")) continue;
    queried[line.substr(0, comma)] = std::stoull(line.substr(comma + 1));
  }
  EXPECT_FALSE(printed.empty());
  EXPECT_EQ(counted, printed);
  EXPECT_EQ(queried, printed);
}

// Also where a straight run goes on into another function.
TEST_P(VerbsAgree, InstructionsByFunction) {
  Counts printed, counted;
  for (const std::string& line : run("decode -F sym,dso", part())) {
    const size_t begin = line.find_first_not_of(' ');
    if (begin != std::string::npos && line.find("[unknown]") == std::string::npos)
      ++printed[line.substr(begin)];
  }
  for (const std::string& line : run("report --top 0 --format jsonl", part())) {
    const std::string name = value_of(line, "name");
    if (line.starts_with("{\"type\":\"hot\"") && !name.starts_with("no symbol"))
      counted[name] += std::stoull(value_of(line, "instructions"));
  }
  EXPECT_FALSE(printed.empty());
  EXPECT_EQ(counted, printed);
}

INSTANTIATE_TEST_SUITE_P(
    Captures, VerbsAgree,
    ::testing::Values(TestRecording{"demo", "demo", "perf.data"},
                      TestRecording{"demo_arm64", "demo-arm64", "perf.data"},
                      TestRecording{"board_x86", "board-x86/capture.tar.xz", "perf.data"},
                      TestRecording{"board_arm64", "board-arm64/capture.tar.xz", "perf.data"}),
    RecordingTest::name);

}  // namespace
}  // namespace asof::test
