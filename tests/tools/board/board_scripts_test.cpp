// The commands that make recordings on validation machines: what can be seen of them without a machine.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <string>

namespace asof::test {
namespace {

int status_of(const std::string& command) {
  return WEXITSTATUS(
      std::system(("cd " ASOF_BOARD " && { " + command + "; } >/dev/null 2>&1 </dev/null").c_str()));
}

TEST(BoardScripts, ShellcheckFindsNothing) {
  if (status_of("shellcheck --version") != 0) GTEST_SKIP() << "shellcheck is not installed";
  // Paths of sourced files are those from the top.
  EXPECT_EQ(status_of("cd ../.. && shellcheck -x tools/board/pt tools/board/ete tools/board/matrix "
                      "tools/board/x86 tools/board/arm64 tools/board/*.sh tools/board/machine/*.sh"),
            0);
  EXPECT_EQ(status_of("shellcheck -s dash machine/guest/*.sh machine/guest/init"), 0);
}

TEST(BoardScripts, WrongOptionsExitWith1) {
  for (const char* command : {"./pt", "./ete"}) {
    for (const char* wrong : {"", "--nonsense", "--kernel 6.12", "--mode cpu"})
      EXPECT_EQ(status_of(std::string(command) + " " + wrong), 1) << command << " " << wrong;
    EXPECT_EQ(status_of(std::string(command) + " --help"), 0);
  }
}

// Nothing is downloaded or started for them.
TEST(BoardScripts, WrongValuesExitWith2) {
  for (const char* command : {"./pt", "./ete"}) {
    for (const char* wrong : {"--kernel 5.10 --mode cpu", "--kernel 6.12 --mode cpu --cpus two", "--kernel",
                              "--kernel 6.12 --mode cpu --build /nowhere"})
      EXPECT_EQ(status_of(std::string(command) + " " + wrong), 2) << command << " " << wrong;
  }
}

// A mode that records a program without a shell around it: the usual workload, ls, is none.
TEST(BoardScripts, AModeOfProgramsWantsOne) {
  for (const char* command : {"./pt", "./ete"}) {
    const std::string start = std::string(command) + " --kernel 6.12 --build /nowhere ";
    const std::string said = " 2>&1 | grep -q 'records a program'";
    EXPECT_EQ(status_of(start + "--mode cpu,thread" + said), 0);
    EXPECT_EQ(status_of(start + "--mode cpu,thread:ls --workload true" + said), 0);
    EXPECT_NE(status_of(start + "--mode cpu:ls,thread --workload true" + said), 0);
    EXPECT_NE(status_of(start + "--mode cpu,thread:signals" + said), 0);
  }
}

TEST(BoardScripts, ALivePatchNeedsHeaders) {
  EXPECT_EQ(status_of("./pt --list | grep -q livepatch"), 0);
  EXPECT_EQ(status_of("./machine/module.sh"), 2);
  EXPECT_EQ(
      status_of("./machine/packages.sh --store $(mktemp -d) headers-6.1 2>&1 | grep -q 'unpack 6.1 first'"),
      0);
}

}  // namespace
}  // namespace asof::test
