// `asof validate` on captures that stock perf made: it finds nothing wrong with them, and reports a wrong
// clock. Skipped where they are absent.
#include <nlohmann/json.hpp>

#include "tests/support/damage.h"
#include "tests/support/skip_without.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

struct Answers {
  int status = -1;
  nlohmann::json checks = nlohmann::json::array();

  bool gives(const std::string& result, const std::string& topic, const std::string& words) const {
    return std::ranges::any_of(checks, [&](const auto& c) {
      return c["result"] == result && c["topic"] == topic &&
             c["answer"].template get<std::string>().find(words) != std::string::npos;
    });
  }
};

Answers validate(const fs::path& capture) {
  const Ran ran = run_asof("validate " + capture.string() + " --format json -q");
  const auto json = nlohmann::json::parse(ran.out, nullptr, false);
  return {ran.status, json.is_discarded() ? nlohmann::json::array() : json["checks"]};
}

// Five visits to perf_event_switch_output() for each context switch, one of which writes; and kernel exits
// where libipt stops at the MOV to CR3 before the SYSRET.
TEST(ValidateVpt, WritesOfRecordsAndKernelExits) {
  const fs::path both = shared("captures/vpt-612/both.asof.tar.zst");
  SKIP_WITHOUT(both);
  const Answers user_and_kernel = validate(both);
  EXPECT_EQ(user_and_kernel.status, 0) << user_and_kernel.checks.dump(1);
  EXPECT_TRUE(user_and_kernel.gives("pass", "clock", "of 34 writes of context switch records"));
  const Answers kernel = validate(shared("captures/vpt-612/kernel.data"));
  EXPECT_EQ(kernel.status, 0) << kernel.checks.dump(1);
  EXPECT_TRUE(kernel.gives("pass", "clock", "1 122 have one at that time")) << kernel.checks.dump(1);
  EXPECT_TRUE(kernel.gives("pass", "clock", "133 have one at that time")) << kernel.checks.dump(1);
  EXPECT_TRUE(kernel.gives("pass", "reference", "the same 16 571 367 instructions in 368 segments"));
}

TEST(ValidateVpt, ShiftedClock) {
  const fs::path kernel = shared("captures/vpt-612/kernel.data");
  SKIP_WITHOUT(kernel);
  for (const int64_t by : {-500'000, 500'000}) {
    const TempDir dir;
    DamagedCapture damaged(kernel, dir.path());
    damaged.shift_clock(by);
    const Answers a = validate(damaged.path());
    EXPECT_EQ(a.status, 3);
    EXPECT_TRUE(a.gives("fail", "clock", "writes of context switch records")) << a.checks.dump(1);
  }
}

}  // namespace
}  // namespace asof::test
