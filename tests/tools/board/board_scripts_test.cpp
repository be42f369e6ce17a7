// The commands that make recordings on validation machines: what can be seen of them without a machine.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace asof::test {
namespace {

namespace fs = std::filesystem;

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

// A copy of matrix in a folder of its own, with `board` in the place of pt, and `loader` in that of perf.
class Matrix : public ::testing::Test {
 protected:
  void SetUp() override {
    if (status_of("jq --version") != 0) GTEST_SKIP() << "jq is not installed";
    char name[] = "/tmp/asof-matrix.XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    fs::create_directory(folder_ / "machine");
    fs::copy(ASOF_BOARD "/matrix", folder_);
    fs::copy(ASOF_BOARD "/machine/lib.sh", folder_ / "machine");
    fs::create_directories(folder_ / "build/tests/peers");
    script("build/tests/peers/perf_compare", "cat");
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }
  void script(const fs::path& name, const std::string& text) const {
    std::ofstream(folder_ / name) << "#!/bin/sh\n" << text << "\n";
    fs::permissions(folder_ / name, fs::perms::owner_all);
  }
  // As the first of a process group, like a command in a terminal, where the keys send signals to all of the group.
  int run(const std::string& arguments) const {
    const std::string at = folder_.string();
    return status_of("cd " + at + " && MACHINE_STORE=" + at +
                     "/store setsid --wait sh -c 'echo $$ >group; exec ./matrix --build build " + arguments +
                     "'");
  }

  fs::path folder_;
};

TEST_F(Matrix, EndsAsItsBoardDoes) {
  for (int status : {0, 2, 3, 130}) {
    script("pt", "exit " + std::to_string(status));
    EXPECT_EQ(run("--kernels 6.1"), status == 3 ? 0 : status);
  }
}

// What perf had not decoded by then must not pass for its result later.
TEST_F(Matrix, AnInterruptionWhilePerfRunsIsNoResultOfPerf) {
  const fs::path run_folder = folder_ / "run", recording = run_folder / "cpu-ls";
  fs::create_directories(recording / "truth");
  std::ofstream(run_folder / "run.json")
      << R"({"kernel": "6.1", "architecture": "x86_64", "cpus": 1, "seed": 1, "options": ""})";
  std::ofstream(recording / "record.txt");
  std::ofstream(recording / "perf.data");
  std::ofstream(recording / "verdict.json")
      << R"({"cpus": [{"right": 1, "wrong": 0, "missing": 0, "late": 0, "missing_by_cause": {},
            "right_by_confidence": {"ambiguous": 0}, "wrong_by_confidence": {"certain": 0, "proved": 0}}], "checks": []})";
  fs::create_directories(folder_ / "store/root-6.1/usr/lib64");
  std::ofstream(folder_ / "store/root-6.1/PACKAGES");

  const fs::path loader = "store/root-6.1/usr/lib64/ld-linux-x86-64.so.2";
  script(loader, "exit 0");
  EXPECT_EQ(run("--print run"), 0);
  EXPECT_TRUE(fs::remove(recording / "perf-status.txt"));

  script(loader, "kill -s INT -- -$(cat " + (folder_ / "group").string() + "); exec sleep 20");
  EXPECT_EQ(run("--print run"), 130);
  EXPECT_FALSE(fs::exists(recording / "perf-status.txt"));
}

}  // namespace
}  // namespace asof::test
