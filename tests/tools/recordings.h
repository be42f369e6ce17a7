// Recordings of the project and of ../shared with switches, losses, interrupts, several CPUs, and without a time; as
// parameters of tests.
#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/effort.h"
#include "tests/support/skip_without.h"
#include "tests/tools/run_asof.h"
#include "tools/decode/decode_blocks.h"

namespace asof::test {

struct TestRecording {
  const char* name;  // of the test
  const char* archive;
  const char* data;
};
inline void PrintTo(const TestRecording& r, std::ostream* out) { *out << r.name; }

class RecordingTest : public ::testing::TestWithParam<TestRecording> {
 public:
  static std::string name(const ::testing::TestParamInfo<TestRecording>& info) { return info.param.name; }

 protected:
  void SetUp() override {
    const std::string archive = GetParam().archive;
    folder_ = dir_.path().string();
    if (archive.ends_with(".tar.xz")) {
      const std::string from = ASOF_TEST_DATA "/" + archive;
      ASSERT_EQ(std::system(fmt::format("tar -C '{}' -xJf '{}'", folder_, from).c_str()), 0);
    } else {
      folder_ = std::filesystem::exists(ASOF_TEST_DATA "/" + archive) ? ASOF_TEST_DATA "/" + archive
                                                                      : shared("captures/" + archive);
    }
    SKIP_WITHOUT(folder_);
  }
  std::string path() const { return (std::filesystem::path(folder_) / GetParam().data).string(); }
  std::string symfs() const {
    return std::string(GetParam().archive).starts_with("demo") ? ASOF_TEST_DATA "/demo/symfs"
                                                               : folder_ + "/symfs";
  }
  Result<Capture> open() const {
    CaptureOptions o;
    o.host_files = false;
    o.symfs = symfs();
    return open_capture(path(), o);
  }

  // As a block stream that says what calls add up to.
  static void write_blocks(const Capture& capture, const std::string& path) {
    auto out = Output::open(path);
    ASSERT_TRUE(out);
    DecodeChoice choice;
    BlocksConsumer consumer(capture, *out, choice, true);
    ASSERT_TRUE(run_pipeline(capture, choice.pipeline, ChunkOrder::kByStream, consumer));
    consumer.finish();
    ASSERT_TRUE(out->finish());
  }

  const TempDir dir_;
  std::string folder_;
};

inline std::vector<TestRecording> recordings() {
  std::vector<TestRecording> out{
      TestRecording{"demo", "demo", "perf.data"},
      TestRecording{"demo_arm64", "demo-arm64", "perf.data"},
      TestRecording{"board_x86", "board-x86/capture.tar.xz", "perf.data"},
      TestRecording{"board_arm64", "board-arm64/capture.tar.xz", "perf.data"},
      TestRecording{"tailcall_61", "machine-6.1/kernel-tailcall.tar.xz", "perf.data"},
      TestRecording{"tailcall_612", "machine-6.12/kernel-tailcall.tar.xz", "perf.data"},
      TestRecording{"user_true", "machine-6.12-arm64/user-true.tar.xz", "perf.data"},
      TestRecording{"uprobe", "machine-7.3/thread-user-uprobe.tar.xz", "perf.data"},
      TestRecording{"userkernel", "x86-board-userkernel", "perf.data"},
      TestRecording{"work", "pt-work-1round", ""}};
  if (!kSanitized) {
    out.push_back({"storm", "x86-board-storm", "perf.data"});
    out.push_back({"mods", "x86-board-mods", "perf.data"});
  }
  return out;
}
inline const auto kRecordings = ::testing::ValuesIn(recordings());
// Without the largest, for tests that decode each many times; userkernel and mods have all that it has.
inline std::vector<TestRecording> smaller_recordings() {
  auto out = recordings();
  std::erase_if(out, [](const TestRecording& r) { return std::string_view(r.name) == "storm"; });
  return out;
}
inline const auto kSmallerRecordings = ::testing::ValuesIn(smaller_recordings());

}  // namespace asof::test
