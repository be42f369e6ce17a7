// `asof inject` of a recording with copies of kcore writes a folder, in which perf finds the kernel's text.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/tools/peer_perf.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = ASOF_TEST_DATA "/demo/perf.data";

class InjectFolder : public ::testing::Test {
 protected:
  Ran inject() { return run_asof(fmt::format("inject --itrace=i1i -o {} {}", out().string(), kDemo)); }
  fs::path out() const { return dir_.path() / "out.data"; }
  std::string perf(const std::string& arguments) const {
    const fs::path file = dir_.path() / "perf.out";
    [[maybe_unused]] const int status = std::system(
        fmt::format("perf {} -i {} >{} 2>/dev/null </dev/null", arguments, out().string(), file.string())
            .c_str());
    return read_file(file);
  }
  TempDir dir_;
};

TEST_F(InjectFolder, HasTheCopiesOfTheRecording) {
  const Ran r = inject();
  ASSERT_EQ(r.status, 0) << r.err;
  size_t files = 0;
  for (const fs::directory_entry& e : fs::directory_iterator(kSource / "kcore_dir")) {
    EXPECT_EQ(read_file(out() / "kcore_dir" / e.path().filename()), read_file(e.path())) << e.path();
    ++files;
  }
  EXPECT_EQ(files, 3U);
  EXPECT_TRUE(fs::is_regular_file(out() / "data"));
  // Once more, over itself; but not over the recording, nor over a file.
  EXPECT_EQ(inject().status, 0);
  EXPECT_NE(run_asof(fmt::format("inject -o {} {}", kSource.string(), kDemo)).status, 0);
  fs::remove_all(out());
  fs::copy_file(kSource / "data", out());
  EXPECT_NE(inject().err.find("it is a file"), std::string::npos);
}

TEST_F(InjectFolder, PerfNamesAndAnnotatesTheKernel) {
  ASOF_SKIP_WITHOUT_PERF();
  ASSERT_EQ(inject().status, 0);
  const std::string report = perf("report --stdio --sort symbol");
  EXPECT_NE(report.find("[k] vfs_read"), std::string::npos) << report;
  EXPECT_NE(report.find("[k] do_syscall_64"), std::string::npos) << report;
  if (std::system("objdump --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "objdump is not installed";
  const std::string code = perf("annotate --stdio -s vfs_read");
  EXPECT_NE(code.find("push"), std::string::npos) << code;
}

}  // namespace
}  // namespace asof::test
