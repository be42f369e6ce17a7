// Two counts of the same flow against the same truth, by two programs that share nothing: asof validate, and
// tests/support/truth_counter.
#include "tests/support/truth_counter.h"
#include "tests/support/skip_without.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <ostream>

#include "tests/support/temp_dir.h"
#include "tests/tools/run_asof.h"

namespace asof::test {

void PrintTo(const TruthCount& c, std::ostream* out) {
  *out << fmt::format("right {}, wrong {} (certain {}, proved {}), missing {}", c.right, c.wrong,
                      c.wrong_certain, c.wrong_proved, c.missing);
}

namespace {

std::map<int, TruthCount> validated(const std::string& arguments) {
  const Ran ran = run_asof("validate " + arguments + " --cross-check 0 --format json -q");
  const auto json = nlohmann::json::parse(ran.out, nullptr, false);
  std::map<int, TruthCount> out;
  if (json.is_discarded()) return out;
  for (const auto& [cpu, counts] : json["cpus"].items()) {
    const auto& wrong = counts["wrong_by_confidence"];
    out[std::stoi(cpu)] = {counts["right"].get<uint64_t>(), counts["wrong"].get<uint64_t>(),
                           counts["missing"].get<uint64_t>() + counts["late"].get<uint64_t>(),
                           wrong["certain"].get<uint64_t>(), wrong["proved"].get<uint64_t>()};
  }
  return out;
}

struct Counted {
  const char* name;  // of the test
  const char* data;  // below captures/
  bool symfs = false, kcore_end = false;
};
void PrintTo(const Counted& c, std::ostream* out) { *out << c.name; }

class TruthCounter : public ::testing::TestWithParam<Counted> {};

TEST_P(TruthCounter, CountsWhatValidateCounts) {
  const Counted& c = GetParam();
  const std::filesystem::path data = shared(std::string("captures/") + c.data);
  SKIP_WITHOUT(data);
  const std::string board = data.parent_path().string();
  CaptureOptions options;
  std::string arguments = data.string() + " --truth " + board + "/truth";
  if (c.symfs) options.symfs = data / "symfs", arguments += " --symfs " + options.symfs;
  if (c.kcore_end) options.kcore_end = board + "/kcore.end", arguments += " --kcore-end " + options.kcore_end;
  const auto counted = count_capture(data, options, board + "/truth");
  EXPECT_EQ(counted.size(), 2U);
  EXPECT_EQ(validated(arguments), counted);
}

INSTANTIATE_TEST_SUITE_P(
    Boards, TruthCounter,
    ::testing::Values(Counted{"x86_small", "x86-board-small/perf.data"},
                      Counted{"x86_storm", "x86-board-storm/perf.data"},
                      Counted{"x86_storm_tsc1ms", "x86-board-storm-tsc1ms/perf.data"},
                      Counted{"x86_userkernel", "x86-board-userkernel/perf.data", true},
                      Counted{"x86_mods", "x86-board-mods/perf.data"},
                      Counted{"arm64_tiny", "arm64-board-tiny/poke.data", false, true},
                      Counted{"arm64_tiny_nothing_tells", "arm64-board-tiny/nopoke.data", false, true},
                      Counted{"arm64_helper", "arm64-board-helper/poke.data", false, true}),
    [](const auto& info) { return info.param.name; });

// With only one state of the text much is wrong: the counts must agree there, too.
TEST(TruthCounterOfTheProjectsBoards, CountsWhatValidateCounts) {
  for (const char* name : {"board-x86", "board-arm64"}) {
    const TempDir dir;
    const std::string to = dir.path().string();
    const std::string command =
        fmt::format("tar -C '{}' -xJf '{}/{}/capture.tar.xz'", to, ASOF_TEST_DATA, name);
    ASSERT_EQ(std::system(command.c_str()), 0);
    for (const auto& [mode, text_at] : {std::pair{"asof", TextAt::kAsof}, std::pair{"first", TextAt::kFirst},
                                        std::pair{"last", TextAt::kLast}}) {
      const auto counted = count_capture(to + "/perf.data", {}, to + "/truth", text_at);
      EXPECT_EQ(counted.size(), 2U);
      EXPECT_EQ(validated(fmt::format("{0}/perf.data --truth {0}/truth --text-at {1}", to, mode)), counted)
          << name << " " << mode;
    }
  }
}

// The counter itself, on a sequence made by hand: one stretch is wrong, one is not at the first occurrence of
// its first instructions.
TEST(TruthCounterItself, FindsWhatIsWrong) {
  const std::vector<ExecutedRun> truth{
      {0x1000, 8, 2}, {0x2000, 8, 2}, {0x1000, 8, 2}, {0x3000, 4, 1}, {0x2000, 8, 2}};
  DecodedFlow flow;
  const auto add = [&](Addr ip, Confidence c) {
    flow.ips.push_back(ip);
    flow.lengths.push_back(4);
    flow.confidences.push_back(static_cast<uint8_t>(c));
  };
  flow.islands = {0, 2, 5};
  add(0x1000, Confidence::kCertain), add(0x1004, Confidence::kCertain);
  add(0x1000, Confidence::kCertain), add(0x1004, Confidence::kCertain), add(0x3000, Confidence::kCertain);
  add(0x2000, Confidence::kCertain), add(0x2004, Confidence::kCertain), add(0x9000, Confidence::kProved);
  const TruthCount c = count_against(flow, truth);
  EXPECT_EQ(c, (TruthCount{7, 1, 2, 0, 1}));
}

}  // namespace
}  // namespace asof::test
