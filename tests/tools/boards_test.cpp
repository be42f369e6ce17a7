// Live text of real kernels: every instruction of the board captures, and what recordings without their files
// end in. Skipped where the captures beside the project are absent.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

class Board : public ::testing::TestWithParam<const char*> {};

TEST_P(Board, EveryInstructionIsRight) {
  const std::string board = shared(std::string("captures/x86-board-") + GetParam());
  if (!std::filesystem::exists(board)) GTEST_SKIP() << "captures beside the project are absent";
  const Ran ran = run_asof("validate " + board + "/perf.data --symfs " + board + "/perf.data/symfs --truth " +
                           board + "/truth --format json -q");
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  const auto json = nlohmann::json::parse(ran.out, nullptr, false);
  ASSERT_FALSE(json.is_discarded()) << ran.out;
  ASSERT_EQ(json["cpus"].size(), 2U) << ran.out;
  for (const auto& [name, cpu] : json["cpus"].items()) {
    EXPECT_EQ(cpu["wrong"], 0) << ran.out;
    EXPECT_EQ(cpu["missing"], 0) << ran.out;
    EXPECT_GT(cpu["right"], 100'000) << ran.out;
  }
}

INSTANTIATE_TEST_SUITE_P(X86, Board, ::testing::Values("small", "storm", "storm-tsc1ms", "userkernel"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// A CoreSight capture of a board: what tells of its changes of text, and how much of it is exact.
struct Arm64Capture {
  const char* name;  // of the test
  const char* data;  // below captures/
  uint64_t right, missing;
};
class Arm64Board : public ::testing::TestWithParam<Arm64Capture> {};

TEST_P(Arm64Board, NothingSureIsWrong) {
  const Arm64Capture& c = GetParam();
  const std::string data = shared(std::string("captures/") + c.data);
  if (!std::filesystem::exists(data)) GTEST_SKIP() << "captures beside the project are absent";
  const std::string board = std::filesystem::path(data).parent_path().string();
  const Ran ran = run_asof("validate " + data + " --truth " + board + "/truth --kcore-end " + board +
                           "/kcore.end --format json -q");
  const auto json = nlohmann::json::parse(ran.out, nullptr, false);
  ASSERT_FALSE(json.is_discarded()) << ran.out << ran.err;
  ASSERT_EQ(json["cpus"].size(), 2U) << ran.out;
  uint64_t right = 0, missing = 0;
  for (const auto& [name, cpu] : json["cpus"].items()) {
    EXPECT_EQ(cpu["wrong_by_confidence"]["certain"], 0) << ran.out;
    EXPECT_EQ(cpu["wrong_by_confidence"]["proved"], 0) << ran.out;
    right += cpu["right"].get<uint64_t>();
    missing += cpu["missing"].get<uint64_t>();
  }
  EXPECT_GE(right, c.right);
  EXPECT_LE(missing, c.missing);
}

INSTANTIATE_TEST_SUITE_P(
    Arm64, Arm64Board,
    ::testing::Values(Arm64Capture{"tiny", "arm64-board-tiny/poke.data", 8'319'229, 6},
                      Arm64Capture{"tiny_return_stack", "arm64-board-tiny/poke-retstack.data", 8'319'229, 6},
                      Arm64Capture{"tiny_cycle_counts", "arm64-board-tiny/poke-cyclecount.data", 8'319'229,
                                   6},
                      Arm64Capture{"tiny_raw", "arm64-board-tiny/poke-rawaux.data", 8'319'229, 6},
                      Arm64Capture{"tiny_nothing_tells", "arm64-board-tiny/nopoke.data", 8'200'000, 100'000},
                      Arm64Capture{"helper", "arm64-board-helper/poke.data", 9'105'337, 224},
                      Arm64Capture{"helper_samples", "arm64-board-helper/nopoke.data", 9'105'337, 224}),
    [](const auto& info) { return info.param.name; });

// No binary of this recording is here: the files are named, nothing is guessed.
TEST(Boards, RecordingWithoutItsFilesNamesThem) {
  const std::string file = shared("corpus/perfdata-intel_pt-quipper/perf.data.intel_pt-4.14");
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "captures beside the project are absent";
  const Ran ran = run_asof("decode " + file);
  EXPECT_EQ(ran.status, 5);
  EXPECT_TRUE(ran.out.empty());
  EXPECT_NE(
      ran.err.find(
          "E-TEXT-201 /lib64/libc-2.23.so: no file with build-id 93fdba25fc55b597068e81c42f82e7766da372cb"),
      std::string::npos)
      << ran.err;
}

}  // namespace
}  // namespace asof::test
