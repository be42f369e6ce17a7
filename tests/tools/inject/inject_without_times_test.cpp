// `asof inject` of a recording of one thread, whose records have no times.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "decoder/perf/perf_data.h"
#include "decoder/perf/record_types.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

class InjectWithoutTimes : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string archive = ASOF_TEST_DATA "/machine-7.3/thread-user-uprobe.tar.xz";
    ASSERT_EQ(std::system(fmt::format("tar -C '{}' -xJf '{}'", dir_.path().string(), archive).c_str()), 0);
  }
  Ran inject() const {
    return run_asof(fmt::format("inject --itrace=i1000i -i {} --symfs {} -o {}", path("perf.data"),
                                path("symfs"), path("out.data")));
  }
  std::string path(const char* name) const { return (dir_.path() / name).string(); }
  TempDir dir_;
};

// perf 6.12 and later forgets a task and what it had mapped when it ends: its samples would have no names.
TEST_F(InjectWithoutTimes, ATaskEndsAfterItsSamples) {
  ASSERT_EQ(inject().status, 0);
  const auto data = PerfData::open(path("out.data"));
  ASSERT_TRUE(data.has_value());
  Time mapped = kTimeMin, first = kTimeMax, last = kTimeMin, end = kTimeMin;
  size_t samples = 0;
  (*data)->for_each([&](const Record& r) {
    if (r.type == perf::kMmap2) mapped = std::max(mapped, r.time());
    if (r.type == perf::kExit) end = r.time();
    if (r.type != perf::kSample) return true;
    EXPECT_EQ(end, kTimeMin) << "written before a sample";
    first = std::min(first, r.time());
    last = std::max(last, r.time());
    ++samples;
    return true;
  });
  EXPECT_GT(samples, 300U);
  EXPECT_LT(mapped, first);
  EXPECT_GE(end, last);
}

// Each pass through a slot of uprobes or through their trampoline is one.
TEST_F(InjectWithoutTimes, GapsAreToldByCause) {
  const Ran r = inject();
  EXPECT_NE(r.err.find("E-TEXT-001 1 199 times, first: "), std::string::npos) << r.err;
  EXPECT_LT(std::ranges::count(r.err, '\n'), 10) << r.err;
}

}  // namespace
}  // namespace asof::test
