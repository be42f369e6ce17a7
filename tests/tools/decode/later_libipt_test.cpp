// `--engine libipt` with the rules that libipt has from 2.1 on (tests/faults/later_libipt.c), where 2.0 is installed.
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

constexpr const char* kIgnored = "later libipt: an event was ignored";

Ran run(const std::string& arguments, bool later) {
  if (later) ::setenv("LD_PRELOAD", ASOF_LATER_LIBIPT, 1);
  Ran ran = run_asof(arguments);
  ::unsetenv("LD_PRELOAD");
  return ran;
}

// Times want all pointers of pt_insn_time(); what follows an event wants that it is taken.
TEST(LaterLibipt, FindsTheSame) {
  for (const char* arguments : {"decode -F ip,time --ns " ASOF_TEST_DATA "/demo/perf.data",
                                "digest " ASOF_TEST_DATA "/board-x86/capture.tar.xz"}) {
    const std::string all = std::string(arguments) + " --engine libipt";
    const Ran one = run(all, false), later = run(all, true);
    EXPECT_EQ(one.status, 0) << one.err;
    EXPECT_EQ(later.status, 0) << later.err;
    EXPECT_NE(later.err.find(kIgnored), std::string::npos) << later.err;
    EXPECT_FALSE(one.out.empty()) << arguments;
    EXPECT_TRUE(one.out == later.out) << arguments << '\n' << later.err;
  }
}

}  // namespace
}  // namespace asof::test
