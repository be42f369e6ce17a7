// A process runs code of a JIT that reuses addresses and moves functions, under Intel PT: every instruction
// must be decoded.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>

#include "tests/support/expect_exact.h"
#include "tests/support/jit_capture.h"
#include "tests/support/temp_dir.h"

namespace asof::test {
namespace {

class JitTrace : public ::testing::Test {
 protected:
  void run(bool counter = true, bool big_endian = false) {
    capture_.emplace(counter, big_endian);
    capture_->write(dir_.path());
  }
  DecodedCapture decode(unsigned jobs = 1) {
    CaptureOptions options;
    options.host_files = false;
    options.symfs = (dir_.path() / "symfs").string();
    PipelineOptions pipeline;
    pipeline.jobs = jobs;
    auto decoded = decode_capture((dir_.path() / "perf.data").string(), options, pipeline);
    EXPECT_TRUE(decoded.has_value());
    return std::move(*decoded);
  }
  static bool in_jit(Addr a) { return a >= JitCapture::kJit && a < JitCapture::kMoved; }

  std::optional<JitCapture> capture_;
  TempDir dir_;
};

TEST_F(JitTrace, EveryVersionOfAReusedAddress) {
  run();
  ASSERT_GT(std::ranges::count_if(capture_->truth(), [](const Executed& e) { return in_jit(e.ip); }), 500)
      << "the JIT's code ran";
  for (const unsigned jobs : {1U, 4U}) {
    const DecodedCapture decoded = decode(jobs);
    ASSERT_EQ(decoded.streams.size(), 1U);
    expect_exact(decoded.streams[0].instructions, capture_->truth());
    EXPECT_TRUE(decoded.streams[0].gaps.empty());
    std::set<std::string> names;
    const Capture& c = decoded.capture;
    const Space space = c.streams[0].contexts.at(0).space;
    for (const DecodedInstruction& i : decoded.streams[0].instructions) {
      const auto s = c.symbols.find(space, i.ip, i.time);
      if (s && s->symbol->dso.find("jit-4242") != std::string::npos) names.insert(s->symbol->name);
    }
    EXPECT_EQ(names, (std::set<std::string>{"version0", "version1", "version2"}));
  }
}

TEST_F(JitTrace, FileOfTheOtherByteOrder) {
  run(true, true);
  expect_exact(decode().streams.at(0).instructions, capture_->truth());
}

TEST_F(JitTrace, WithoutACommonClockReusedAddressesAreUnknownNotWrong) {
  run(false);
  const DecodedCapture decoded = decode();
  // Whatever is decoded ran, in this order, and none of it is where the code is unknown.
  const auto& truth = capture_->truth();
  size_t at = 0;
  for (const DecodedInstruction& i : decoded.streams.at(0).instructions) {
    while (at < truth.size() && truth[at].ip != i.ip) ++at;
    ASSERT_LT(at++, truth.size()) << "not executed: " << std::hex << i.ip;
    ASSERT_FALSE(in_jit(i.ip)) << std::hex << i.ip;
  }
  for (const Gap& gap : decoded.streams.at(0).gaps) {
    // Either the bytes are unknown, or it is the return from code whose bytes are unknown.
    EXPECT_TRUE(gap.code == Code::kNoBytes || gap.code == Code::kReturnWithoutItsCall) << gap.code;
  }
  size_t moved = 0;  // the target of the move was used once
  for (const DecodedInstruction& i : decoded.streams.at(0).instructions)
    moved += i.ip >= JitCapture::kMoved && i.ip < JitCapture::kMoved + 0x100 ? 1 : 0;
  EXPECT_GT(moved, 50U);
}

}  // namespace
}  // namespace asof::test
