// Debug files from a server, which is a folder here: libdebuginfod takes file:// addresses.
#include "decoder/lines/debuginfod.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>

#include "tests/support/debuginfod_servers.h"
#include "tests/support/perf_data_writer.h"
#include "tests/support/temp_dir.h"

namespace asof {
namespace {

using namespace test;
namespace fs = std::filesystem;

class DebuginfodTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASOF_SKIP_WITHOUT_DEBUGINFOD();
    servers_.emplace("file://" + dir_.path().string(), dir_.path() / "cache");
    fs::create_directories(dir_.path() / "buildid" / kId);
    write_text(dir_.path() / "buildid" / kId / "debuginfo", "content");
  }
  static constexpr const char* kId = "0123456789abcdef0123456789abcdef01234567";
  TempDir dir_;
  std::optional<DebuginfodServers> servers_;
};

TEST_F(DebuginfodTest, FileOfABuildId) {
  Debuginfod servers;
  const auto found = servers.debug_file(kId);
  ASSERT_TRUE(found.has_value()) << found.error().reason;
  EXPECT_TRUE(found->starts_with((dir_.path() / "cache").string())) << *found;
  EXPECT_EQ(read_bytes(*found).size(), 7U);
  EXPECT_EQ(Debuginfod::cache_folder(), (dir_.path() / "cache").string());
}

TEST_F(DebuginfodTest, NoFileIsNoError) {
  Debuginfod servers;
  const auto found = servers.debug_file("ffffffffffffffffffffffffffffffffffffffff");
  ASSERT_TRUE(found.has_value()) << found.error().reason;
  EXPECT_EQ(*found, "");
  EXPECT_EQ(servers.debug_file("").value(), "");
}

TEST_F(DebuginfodTest, NoServerIsSaidOnce) {
  servers_.reset();
  Debuginfod servers;
  const auto none = servers.debug_file(kId);
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, Code::kDebuginfodFailed);
  EXPECT_NE(none.error().where.find("DEBUGINFOD_URLS"), std::string::npos);
  EXPECT_EQ(servers.debug_file(kId).value(), "") << "not asked again";
}

}  // namespace
}  // namespace asof
