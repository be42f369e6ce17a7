// What a recording leaves open: from when on, and in which text, nothing is certain (docs/live-text.md 2,
// 3.7, 7.3).
#include "tests/decoder/capture_test_util.h"

namespace asof::test {
namespace {

constexpr Addr kCode = 0x401000;

// A process with one file, mapped before the recording.
struct UserRecording : Recording {
  UserRecording() {
    const ExecutableSpec spec{.address = kCode,
                              .text = Bytes(64, 0x11),
                              .symbols = {{"main", kCode, 16}},
                              .build_id = Bytes(20, 0xaa)};
    write_bytes(dir.path() / "perf.data/symfs/bin/a", make_executable(spec));
    const MmapSpec map{.pid = 7,
                       .tid = 7,
                       .addr = kCode,
                       .len = 0x1000,
                       .pgoff = 0x1000,
                       .filename = "/bin/a",
                       .build_id = Bytes(20, 0xaa)};
    writer.mmap2(map, {});
    writer.itrace_start(7, 7, at(10));
  }
};

TEST(UnsureText, NothingIsSureFromTheLastRecordBeforeALoss) {
  UserRecording r;
  r.writer.lost(1, 500, UserRecording::at(50));
  const auto capture = r.open(closed_options());
  ASSERT_TRUE(capture.has_value());
  EXPECT_EQ(capture->text->unsure_from(), 11);
}

TEST(UnsureText, WithoutALossEverythingIs) {
  UserRecording r;
  const auto capture = r.open(closed_options());
  ASSERT_TRUE(capture.has_value());
  EXPECT_EQ(capture->text->unsure_from(), kTimeMax);
}

}  // namespace
}  // namespace asof::test
