// libipt and OpenCSD run in processes of their own: a trace that crashes OpenCSD 1.3.3 costs what it was given, and no more.
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

TEST(ForeignEngine, ACrashIsAGap) {
  const TempDir dir;
  const fs::path capture = dir.path() / "perf.data";
  fs::copy(ASOF_TEST_DATA "/demo-arm64/perf.data", capture, fs::copy_options::recursive);
  fs::remove(capture / "data");
  ASSERT_EQ(
      std::system(("xz -dc " ASOF_TEST_DATA "/damaged/opencsd-crash.data.xz >" + (capture / "data").string())
                      .c_str()),
      0);
  for (const char* verb :
       {"digest", "report", "decode", "stacks --weight instructions", "timeline --format csv -o -"}) {
    const Ran ran = run_asof(std::string(verb) + " --engine libipt " + capture.string());
    EXPECT_EQ(ran.status, 0) << verb << '\n' << ran.err;
    EXPECT_FALSE(ran.out.empty()) << verb;
  }
  const Ran ran = run_asof("decode -v --engine libipt " + capture.string());
  EXPECT_NE((ran.out + ran.err).find("OpenCSD crashed (signal 11) on this part of the trace"),
            std::string::npos)
      << ran.err;
  EXPECT_NE((ran.out + ran.err).find("E-DATA-001"), std::string::npos);
  EXPECT_GT(lines_of(ran.out).size(), 100U) << "the other segments";
}

TEST(ForeignEngine, GivesTheSameForAnyNumberOfThreads) {
  for (const std::string& input : {kDemo, std::string(ASOF_TEST_DATA "/demo-arm64/perf.data")}) {
    const Ran one = run_asof("decode --engine libipt -j1 " + input);
    EXPECT_EQ(one.status, 0) << one.err;
    EXPECT_GT(lines_of(one.out).size(), 10'000U);
    EXPECT_EQ(one.out, run_asof("decode --engine libipt -j4 " + input).out);
  }
}

}  // namespace
}  // namespace asof::test
