// The committed captures of simulated boards (docs/boards.md): a real Debian kernel that rewrites its own
// text, decoded and compared with what executed, from files of this repository only.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/support/perf_data_writer.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

// Unpacked once for all tests of this file.
class BoardCapture : public ::testing::Test {
 protected:
  static std::string unpacked(const std::string& name) {
    static TempDir dir;
    const auto to = dir.path() / name;
    if (std::filesystem::create_directories(to)) {
      const std::string archive = fmt::format("{}/{}/capture.tar.xz", ASOF_TEST_DATA, name);
      const std::string command = fmt::format("tar -C '{}' -xJf '{}'", to.string(), archive);
      if (std::system(command.c_str()) != 0) ADD_FAILURE() << command;
    }
    return to.string();
  }
  static nlohmann::json json_of(const std::string& path) {
    const auto bytes = read_bytes(path);
    return nlohmann::json::parse(bytes.begin(), bytes.end());
  }
  static nlohmann::json validated(const std::string& capture, const std::string& options, int status) {
    const Ran ran =
        run_asof(fmt::format("validate {0}/perf.data --truth {0}/truth --format json {1}", capture, options));
    EXPECT_EQ(ran.status, status) << ran.err;
    return nlohmann::json::parse(ran.out, nullptr, false);
  }
  static uint64_t sum(const nlohmann::json& result, const char* key) {
    uint64_t n = 0;
    for (const auto& cpu : result.at("cpus")) n += cpu.at(key).get<uint64_t>();
    return n;
  }
};

TEST_F(BoardCapture, X86ShowsEveryMechanism) {
  const std::string board = unpacked("board-x86");
  const auto about = json_of(board + "/truth/board.json");
  EXPECT_GE(about["pokes"].get<int>(), 200);
  EXPECT_GE(about["bpf_programs"].get<int>(), 5);
  EXPECT_LE(about["clock"]["error_bound_ns"].get<int>(), 16);
  EXPECT_NE(about["kernel"].get<std::string>().find("Debian"), std::string::npos);
}

TEST_F(BoardCapture, X86IsDecodedExactly) {
  const std::string board = unpacked("board-x86");
  const auto result = validated(board, "", 0);
  ASSERT_FALSE(result.is_discarded());
  EXPECT_EQ(sum(result, "wrong"), 0U);
  EXPECT_EQ(sum(result, "missing"), 0U);
  EXPECT_EQ(sum(result, "late"), 0U);
  EXPECT_GT(sum(result, "right"), 1'000'000U);
  for (const auto& cpu : result.at("cpus")) EXPECT_TRUE(cpu.at("ip_hash_agrees").get<bool>());
}

// The same with only one state of the text, as in other tools: the changes matter here.
TEST_F(BoardCapture, X86NeedsTheTextOfItsTime) {
  const std::string board = unpacked("board-x86");
  for (const char* mode : {"first", "last"}) {
    const auto result = validated(board, std::string("--text-at ") + mode, 3);
    ASSERT_FALSE(result.is_discarded());
    EXPECT_GT(sum(result, "wrong") + sum(result, "missing"), 1000U) << mode;
  }
}

TEST_F(BoardCapture, Arm64ShowsEveryMechanism) {
  const std::string board = unpacked("board-arm64");
  const auto about = json_of(board + "/truth/board.json");
  EXPECT_GE(about["pokes"].get<int>(), 200);
  EXPECT_GE(about["bpf_programs"].get<int>(), 5);
  EXPECT_LE(about["clock"]["error_bound_ns"].get<int>(), 32);
  EXPECT_EQ(about["records_of_the_kernel_by_type"].count("20"), 0U)
      << "an arm64 kernel with TEXT_POKE records";
}

TEST_F(BoardCapture, Arm64IsDecodedExactly) {
  const auto result = validated(unpacked("board-arm64"), "", 0);
  ASSERT_FALSE(result.is_discarded());
  EXPECT_EQ(sum(result, "wrong"), 0U);
  EXPECT_EQ(sum(result, "missing"), 0U);
  EXPECT_GT(sum(result, "right"), 1'000'000U);
  for (const auto& cpu : result.at("cpus")) EXPECT_TRUE(cpu.at("ip_hash_agrees").get<bool>());
}

TEST_F(BoardCapture, Arm64NeedsTheTextOfItsTime) {
  const std::string board = unpacked("board-arm64");
  for (const char* mode : {"first", "last"}) {
    const auto result = validated(board, std::string("--text-at ") + mode, 3);
    ASSERT_FALSE(result.is_discarded());
    EXPECT_GT(sum(result, "wrong") + sum(result, "missing"), 1000U) << mode;
  }
}

}  // namespace
}  // namespace asof::test
