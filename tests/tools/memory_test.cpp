// Memory does not grow with the trace: a capture of a quarter of a gigabyte (ASOF_TRACE_MB sets another size,
// 4096 was tried) needs little more than one of a few megabytes. It is one bundle's trace over and over.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <regex>

#include "tests/support/perf_data_writer.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

const std::string kBundle = shared("captures/pt-work-1round");

// `copies` of the trace in a bundle below `to`.
std::string repeat(const fs::path& to, uint64_t copies) {
  fs::create_directories(to);
  for (const char* name : {"bundle.json", "text.img"}) fs::copy(fs::path(kBundle) / name, to / name);
  const std::string once = read_file(fs::path(kBundle) / "trace.pt");
  std::ofstream out(to / "trace.pt", std::ios::binary);
  for (uint64_t i = 0; i < copies; ++i) out << once;
  EXPECT_TRUE(out.flush().good());
  return to / "bundle.json";
}

struct Used {
  int status = -1;
  uint64_t instructions = 0;
  long kilobytes = 0;  // at the peak, files included
};

Used digest(const TempDir& dir, const std::string& bundle) {
  const std::string out = dir.path() / "out";
  const pid_t child = ::fork();
  if (child == 0) {
    const int fd = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    ::dup2(fd, STDOUT_FILENO);
    ::dup2(fd, STDERR_FILENO);
    ::execl(ASOF_BINARY, ASOF_BINARY, "digest", "-j2", bundle.c_str(), nullptr);
    ::_exit(127);
  }
  Used used;
  rusage usage{};
  EXPECT_EQ(::wait4(child, &used.status, 0, &usage), child);
  used.kilobytes = usage.ru_maxrss;
  const std::string text = read_file(out);
  if (std::smatch m; std::regex_search(text, m, std::regex("total instructions ([0-9]+)")))
    used.instructions = std::stoull(m[1]);
  return used;
}

TEST(Memory, DoesNotGrowWithTheTrace) {
  if (!fs::exists(kBundle)) GTEST_SKIP() << kBundle << " is not unpacked";
  const char* const size = std::getenv("ASOF_TRACE_MB");
  const uint64_t megabytes = size == nullptr ? 256 : std::strtoull(size, nullptr, 10);
  const uint64_t once = fs::file_size(fs::path(kBundle) / "trace.pt");
  const uint64_t many = (megabytes << 20) / once;
  constexpr uint64_t kFew = 32;
  ASSERT_GT(many, kFew);
  const TempDir dir;
  const Used small = digest(dir, repeat(dir.path() / "few", kFew));
  const Used large = digest(dir, repeat(dir.path() / "many", many));
  ASSERT_EQ(small.status, 0);
  ASSERT_EQ(large.status, 0);
  EXPECT_EQ(large.instructions * kFew, small.instructions * many);
  // A segment of the plan takes 56 bytes for 4 KiB of trace, twice that while the list grows.
  const auto plan = static_cast<long>(many * once / 4096 * 56 * 2 / 1024);
  EXPECT_LT(large.kilobytes, small.kilobytes + plan + 32 * 1024)
      << small.kilobytes << " KiB for " << kFew * once << " bytes of trace";
  fmt::print("{} bytes: {} KiB, {} bytes: {} KiB\n", kFew * once, small.kilobytes, many * once,
             large.kilobytes);
}

}  // namespace
}  // namespace asof::test
