// Debug files from a server, which is a folder here: libdebuginfod takes file:// addresses.
#include "decoder/lines/debuginfod.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/support/perf_data_writer.h"
#include "tests/support/temp_dir.h"

namespace asof {
namespace {

using namespace test;
namespace fs = std::filesystem;

class DebuginfodTest : public ::testing::Test {
 protected:
  void SetUp() override {
    void* const library = ::dlopen("libdebuginfod.so.1", RTLD_NOW);
    if (library == nullptr) GTEST_SKIP() << "libdebuginfod is not installed (Debian package libdebuginfod1)";
    ::dlclose(library);
    ::setenv("DEBUGINFOD_CACHE_PATH", (dir_.path() / "cache").c_str(), 1);
    ::setenv("DEBUGINFOD_URLS", ("file://" + dir_.path().string()).c_str(), 1);
    fs::create_directories(dir_.path() / "buildid" / kId);
    write_text(dir_.path() / "buildid" / kId / "debuginfo", "content");
  }
  void TearDown() override {
    ::unsetenv("DEBUGINFOD_URLS");
    ::unsetenv("DEBUGINFOD_CACHE_PATH");
  }
  static constexpr const char* kId = "0123456789abcdef0123456789abcdef01234567";
  TempDir dir_;
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
  ::unsetenv("DEBUGINFOD_URLS");
  Debuginfod servers;
  const auto none = servers.debug_file(kId);
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, Code::kDebuginfodFailed);
  EXPECT_NE(none.error().where.find("DEBUGINFOD_URLS"), std::string::npos);
  EXPECT_EQ(servers.debug_file(kId).value(), "") << "not asked again";
}

}  // namespace
}  // namespace asof
