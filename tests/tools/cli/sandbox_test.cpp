// The sandbox, in child processes that try what it refuses.
#include "tools/cli/sandbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/temp_dir.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

// The errno of an attempt in a child that is confined to `writable`.
int tried(const std::vector<std::string>& writable, const std::function<int()>& attempt,
          Network network = Network::kNo) {
  const pid_t child = ::fork();
  if (child == 0) {
    enter_sandbox(writable, network);
    ::_exit(attempt());
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int write_to(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  return fd < 0 ? errno : 0;
}

int run_true() {
  const char* const arguments[] = {"true", nullptr};
  ::execv("/bin/true", const_cast<char* const*>(arguments));
  return errno;
}

class SandboxTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Sandbox here = try_sandbox();
    if (here.landlock == 0 || !here.seccomp) GTEST_SKIP() << "the sandbox here: " << here.text();
    ASSERT_TRUE(std::filesystem::create_directory(inside_) && std::filesystem::create_directory(outside_));
  }
  TempDir dir_;
  std::string inside_ = dir_.path() / "inside", outside_ = dir_.path() / "outside";
};

TEST_F(SandboxTest, WritesOnlyWhereItMay) {
  EXPECT_EQ(tried({inside_}, [&] { return write_to(inside_ + "/a"); }), 0);
  EXPECT_EQ(tried({inside_}, [&] { return write_to(outside_ + "/a"); }), EACCES);
  EXPECT_EQ(tried({}, [&] { return write_to(inside_ + "/a"); }), EACCES);
  EXPECT_EQ(tried({inside_}, [&] { return ::unlink((inside_ + "/a").c_str()) == 0 ? 0 : errno; }), 0);
  EXPECT_EQ(write_to(outside_ + "/a"), 0) << "this process is free";
  EXPECT_EQ(tried({inside_}, [&] { return ::unlink((outside_ + "/a").c_str()) == 0 ? 0 : errno; }), EACCES);
  EXPECT_EQ(tried({inside_}, [&] { return ::truncate((outside_ + "/a").c_str(), 0) == 0 ? 0 : errno; }),
            EACCES);
}

TEST_F(SandboxTest, APathThatIsNotThereYetCanBeMade) {
  EXPECT_EQ(tried({inside_ + "/new/deep"},
                  [&] {
                    std::error_code failed;
                    std::filesystem::create_directories(inside_ + "/new/deep", failed);
                    return failed ? failed.value() : write_to(inside_ + "/new/deep/a");
                  }),
            0);
}

TEST_F(SandboxTest, RunsNoProgramAndReachesNoNetwork) {
  EXPECT_EQ(tried({}, run_true), EPERM);
  EXPECT_EQ(tried({"/"}, run_true), EPERM);
  for (const int family : {AF_INET, AF_UNIX}) {
    EXPECT_EQ(tried({}, [&] { return ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0) < 0 ? errno : 0; }),
              EPERM);
  }
}

// A client of servers still runs no program, and serves nobody.
TEST_F(SandboxTest, AClientOfServersCanOnlyConnect) {
  const auto socket = [] { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); };
  EXPECT_EQ(tried(
                {}, [&] { return socket() < 0 ? errno : 0; }, Network::kAsClient),
            0);
  EXPECT_EQ(tried(
                {}, [&] { return ::listen(socket(), 1) == 0 ? 0 : errno; }, Network::kAsClient),
            EPERM);
  EXPECT_EQ(tried({}, run_true, Network::kAsClient), EPERM);
}

TEST_F(SandboxTest, ReadsAndComputesAsBefore) {
  EXPECT_EQ(tried({},
                  [] {
                    int sum = 0;
                    std::thread([&] { sum = 1; }).join();
                    return sum == 1 && ::open("/etc/passwd", O_RDONLY | O_CLOEXEC) >= 0 ? 0 : 1;
                  }),
            0);
}

// /proc says of the program what it has taken from itself, while its output fills a pipe that nobody empties.
TEST_F(SandboxTest, TheProgramEntersIt) {
  const std::string script =
      "cd " + dir_.path().string() +
      " && mkfifo out && { " ASOF_BINARY " decode " ASOF_TEST_DATA
      "/demo/perf.data >out 2>/dev/null & pid=$!; exec 9<out; "
      "head -c 1 <&9 >/dev/null; grep 'Seccomp:' /proc/$pid/status >seen; kill -9 $pid; }";
  EXPECT_EQ(std::system(script.c_str()), 0);
  EXPECT_NE(read_file(dir_.path() / "seen").find('2'), std::string::npos);
}

TEST(Sandbox, IsSaidAndCanBeLeftOut) {
  EXPECT_NE(run_asof("version").out.find("\nsandbox "), std::string::npos);
  const std::string demo = " -q " ASOF_TEST_DATA "/demo/perf.data";
  for (const std::string verb : {"report --no-sandbox", "--no-sandbox report"})
    EXPECT_EQ(run_asof(verb + demo).out, run_asof("report" + demo).out) << verb;
}

}  // namespace
}  // namespace asof::test
