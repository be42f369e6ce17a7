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
