// Bundles that do not say whether returns are compressed: the trace shows it.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "decoder/pipeline/pipeline.h"
#include "tests/decoder/capture_test_util.h"
#include "tests/support/pt_writer.h"

namespace asof {
namespace {

using namespace test;

constexpr Addr kCode = 0xffffffff81000000, kAfterCall = kCode + 5;
// main: call f; jmp main; ...; f: ret
const Bytes kText = {0xe8, 0x02, 0x00, 0x00, 0x00, 0xeb, 0xf9, 0xc3};
constexpr uint64_t kRound = 3;  // instructions

class Count final : public ChunkConsumer {
 public:
  void deliver(Chunk& chunk, const Stream&, Prepared*) override {
    for (const Step& step : chunk.steps) instructions += step.count;
    for (const Gap& gap : chunk.gaps) gaps.push_back(gap.code);
  }
  uint64_t instructions = 0;
  std::vector<Code> gaps;
};

class BundleReturns : public ::testing::Test {
 protected:
  // Rounds of main, a sync point before each hundredth.
  void rounds(size_t n, bool compressed) {
    for (; n != 0; --n, ++done_) {
      if (done_ % 100 == 0) {
        PsbPlus group;
        group.ip = kCode;
        w_.psb_plus(group);
      }
      if (compressed)
        w_.tnt(true);
      else
        w_.tip(kAfterCall);
    }
  }
  Capture open(const std::string& pt = "{}") {
    w_.flush();
    w_.tip_pgd();
    write_bytes(dir_ / "trace.pt", w_.bytes());
    write_bytes(dir_ / "text.img", kText);
    write_text(dir_ / "bundle.json", R"({"format": "asof-bundle", "version": 1, "arch": "x86-64", "pt": )" +
                                         pt +
                                         R"(, "streams": [{"file": "trace.pt", "cpu": 0}],
                      "text": [{"file": "text.img", "address": "0xffffffff81000000"}]})");
    auto capture = open_capture((dir_ / "bundle.json").string(), closed_options());
    if (!capture) throw std::runtime_error(capture.error().reason);
    return *std::move(capture);
  }
  static Count decode(const Capture& capture) {
    Count count;
    EXPECT_TRUE(run_pipeline(capture, {.jobs = 1}, ChunkOrder::kByStream, count));
    return count;
  }

 private:
  TempDir dir_;
  PtWriter w_;
  size_t done_ = 0;
};

TEST_F(BundleReturns, ManyAndAllOfThemWithATip) {
  rounds(300, false);
  const Capture capture = open();
  EXPECT_TRUE(capture.x86.no_ret_compression);
  const Count count = decode(capture);
  EXPECT_TRUE(count.gaps.empty());
  EXPECT_GE(count.instructions, 300 * kRound - 1);
  EXPECT_LE(count.instructions, 300 * kRound + 2);
}

TEST_F(BundleReturns, Compressed) {
  rounds(300, true);
  EXPECT_FALSE(open().x86.no_ret_compression);
}

TEST_F(BundleReturns, FewSayNothing) {
  rounds(200, false);
  const Capture capture = open();
  EXPECT_FALSE(capture.x86.no_ret_compression);
  EXPECT_TRUE(decode(capture).gaps.empty());
}

TEST_F(BundleReturns, OneThatIsCompressedIsEnough) {
  rounds(250, false);
  rounds(1, true);
  rounds(100, false);
  const Capture capture = open();
  EXPECT_FALSE(capture.x86.no_ret_compression);
  EXPECT_TRUE(decode(capture).gaps.empty());
}

TEST_F(BundleReturns, WhatTheManifestSaysCounts) {
  rounds(300, false);
  EXPECT_FALSE(open(R"({"ret_compression": true})").x86.no_ret_compression);
}

// Where the beginning misleads, it is said.
TEST_F(BundleReturns, ACompressedOneLaterIsAGap) {
  rounds(400, false);
  rounds(1, true);
  rounds(9, false);
  const Capture capture = open();
  EXPECT_TRUE(capture.x86.no_ret_compression);
  EXPECT_EQ(decode(capture).gaps, std::vector<Code>{Code::kReturnWithoutItsCall});
}

}  // namespace
}  // namespace asof
