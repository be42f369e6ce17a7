// Memory does not grow with the trace: a capture of a quarter of a gigabyte (ASOF_TRACE_MB sets another size,
// 4096 was tried) needs no more than one of a few megabytes. It repeats the trace of one recording.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <regex>

#include "tests/support/perf_data_writer.h"
#include "tests/support/skip_without.h"
#include "tests/tools/run_asof.h"
#include "textstore/sanitized.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

const std::string kBundle = shared("captures/pt-work-1round");

// The capture in `from` with `copies` of its trace, in `to`.
fs::path repeat(const fs::path& from, const std::vector<std::string>& others, const std::string& trace,
                const fs::path& to, uint64_t copies) {
  fs::create_directories(to);
  for (const std::string& name : others) fs::copy(from / name, to / name);
  const std::string once = read_file(from / trace);
  std::ofstream out(to / trace, std::ios::binary);
  for (uint64_t i = 0; i < copies; ++i) out << once;
  EXPECT_TRUE(out.flush().good());
  return to;
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
    // AddressSanitizer keeps what was freed; thousands of frees, not the trace, would fill its quarantine.
    ::setenv("ASAN_OPTIONS", "quarantine_size_mb=1:thread_local_quarantine_size_kb=64", 1);
    // How much decoded data waits for output depends on the scheduling of the threads: a few megabytes at
    // most.
    ::execl(ASOF_BINARY, ASOF_BINARY, "digest", "-j2", "--max-mem", "8M", bundle.c_str(), nullptr);
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

// Memory for `megabytes` of trace exceeds that for a few copies by noise only.
template <class Repeat>
void expect_flat(uint64_t once, uint64_t megabytes, Repeat repeat) {
#if defined(ASOF_THREAD_SANITIZER)
  GTEST_SKIP() << "ThreadSanitizer keeps its shadow of what is no longer mapped in: four times the trace";
#endif
  const char* const size = std::getenv("ASOF_TRACE_MB");
  if (size != nullptr) megabytes = std::strtoull(size, nullptr, 10);
  const uint64_t few = (32ULL << 20) / once, many = (megabytes << 20) / once;
  ASSERT_GT(few, 0U);
  ASSERT_GT(many, few);
  const TempDir dir;
  const Used small = digest(dir, repeat(dir.path() / "few", few));
  const Used large = digest(dir, repeat(dir.path() / "many", many));
  ASSERT_EQ(small.status, 0);
  ASSERT_EQ(large.status, 0);
  ASSERT_GT(small.instructions, 0U);
  // Each copy counts the same, except the last, which has none after it.
  EXPECT_NEAR(static_cast<double>(large.instructions) / static_cast<double>(many),
              static_cast<double>(small.instructions) / static_cast<double>(few),
              static_cast<double>(small.instructions) / static_cast<double>(few) / 100);
  EXPECT_LT(large.kilobytes, small.kilobytes + 24 * 1024);
  fmt::print("{} bytes: {} KiB, {} bytes: {} KiB\n", few * once, small.kilobytes, many * once,
             large.kilobytes);
}

TEST(Memory, DoesNotGrowWithTheTrace) {
  SKIP_WITHOUT(kBundle);
  expect_flat(fs::file_size(fs::path(kBundle) / "trace.pt"), 256, [](const fs::path& to, uint64_t copies) {
    return repeat(kBundle, {"bundle.json", "text.img"}, "trace.pt", to, copies) / "bundle.json";
  });
}

// Six cores' trace in the frames of one buffer.
TEST(Memory, DoesNotGrowWithCoreSightTrace) {
  const fs::path snapshot = shared("corpus/ocsd-juno_r1_1");
  SKIP_WITHOUT(snapshot);
  std::vector<std::string> others;
  for (const auto& entry : fs::directory_iterator(snapshot)) {
    if (entry.is_regular_file() && entry.path().filename() != "cstrace.bin")
      others.push_back(entry.path().filename());
  }
  expect_flat(fs::file_size(snapshot / "cstrace.bin"), 128, [&](const fs::path& to, uint64_t copies) {
    return repeat(snapshot, others, "cstrace.bin", to, copies) / "snapshot.ini";
  });
}

}  // namespace
}  // namespace asof::test
