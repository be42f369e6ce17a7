// Coverage: traced time, time lost in gaps, and the last line of every summary.
#include "tools/output/coverage.h"

#include <gtest/gtest.h>

namespace asof {
namespace {

class CoverageOf : public ::testing::Test {
 protected:
  CoverageOf() {
    Stream s;
    s.name = "cpu0";
    s.cpu = 0;
    static const std::vector<uint8_t> kTrace(1000);
    s.pieces.push_back({.offset = 0, .bytes = kTrace});
    capture.streams.push_back(std::move(s));
    capture.symbols.finish();
    block.count = 4;
    block.size = 8;
  }
  static Gap gap(uint32_t step, Code code, TimeBounds time, uint64_t bytes = 0) {
    Gap g;
    g.step = step;
    g.code = code;
    g.time = time;
    g.end = bytes;
    return g;
  }
  // `first`: the chunk is the first of its stream, and tracing starts in it.
  Chunk chunk(const std::vector<Time>& times, bool first = true) const {
    Chunk c;
    if (first) c.events.push_back({.kind = EventKind::kTraceStart, .time = times[0]});
    for (const Time t : times) c.steps.push_back({.block = &block, .time = t, .count = 4});
    return c;
  }
  Capture capture;
  Block block;
};

TEST_F(CoverageOf, TimeBetweenFirstAndLastStepCounts) {
  Coverage c(capture);
  c.add(chunk({100, 200, 350}), 12);
  c.add(chunk({400}, false), 4);
  EXPECT_EQ(c.traced_ns(), 300U);
  EXPECT_EQ(c.lost_ns(), 0U);
  EXPECT_EQ(c.instructions(), 16U);
  EXPECT_EQ(c.percent(), 100.0);
}

// The gap takes no time on the clock, but what ran in it is missing.
TEST_F(CoverageOf, GapWithoutTimeIsNotRoundedAway) {
  Coverage c(capture);
  Chunk k = chunk({100, 200, 200, 800});
  k.gaps.push_back(gap(2, Code::kReturnWithoutItsCall, {200, 200}));
  c.add(k, 16);
  EXPECT_EQ(c.lost_ns(), 0U);
  EXPECT_EQ(c.percent(), 99.99);
  EXPECT_TRUE(c.line().starts_with("decoded 99.99 % of traced time (1 gap, 0 ns)")) << c.line();
}

TEST_F(CoverageOf, GapTakesTheTimeUpToTheNextStep) {
  Coverage c(capture);
  Chunk k = chunk({100, 200, 700, 800});
  k.gaps.push_back(gap(2, Code::kTraceContradictsText, {}, 64));
  c.add(k, 16);
  EXPECT_EQ(c.traced_ns(), 700U);
  EXPECT_EQ(c.lost_ns(), 500U);
  EXPECT_EQ(c.gaps(), 1U);
  EXPECT_EQ(c.errors(), 1U);
  EXPECT_EQ(c.causes().at(Code::kTraceContradictsText).bytes, 64U);
  EXPECT_EQ(c.causes().at(Code::kTraceContradictsText).time, 500U);
  EXPECT_EQ(c.percent(), 28.57) << "rounded down";
}

TEST_F(CoverageOf, GapWithBoundsTakesNoMoreThanThem) {
  Coverage c(capture);
  Chunk k = chunk({100, 200, 700});
  k.gaps.push_back(gap(2, Code::kAuxFull, {300, 400}));
  c.add(k, 12);
  EXPECT_EQ(c.lost_ns(), 100U);
  EXPECT_EQ(c.traced_ns(), 600U);
  EXPECT_EQ(c.errors(), 0U) << "a loss in the recording is no error of decoding";
}

TEST_F(CoverageOf, GapAtTheEndOfAChunkEndsInTheNext) {
  Coverage c(capture);
  Chunk k = chunk({100, 200});
  k.gaps.push_back(gap(2, Code::kNoBytes, {}));
  c.add(k, 8);
  c.add(chunk({260, 300}, false), 8);
  EXPECT_EQ(c.lost_ns(), 60U);
  EXPECT_EQ(c.traced_ns(), 200U);
  EXPECT_TRUE(c.text_missing());
}

TEST_F(CoverageOf, PausesOfTheTraceAreNotTracedTime) {
  Coverage c(capture);
  Chunk k = chunk({100, 200, 900, 950});
  k.events.push_back({.kind = EventKind::kTraceStop, .step = 2, .time = 210});
  k.events.push_back({.kind = EventKind::kTraceStart, .step = 2, .time = 890});
  c.add(k, 16);
  EXPECT_EQ(c.traced_ns(), 110U + 60U);
  EXPECT_EQ(c.percent(), 100.0);
}

TEST_F(CoverageOf, WithoutTimesBytesAreCounted) {
  Coverage c(capture);
  Chunk k = chunk({kTimeMin, kTimeMin});
  k.gaps.push_back(gap(1, Code::kBadPacket, {}, 250));
  c.add(k, 8);
  EXPECT_FALSE(c.has_time());
  EXPECT_EQ(c.percent(), 75.0);
  EXPECT_NE(c.line().find("75.00 % of trace bytes (1 gap, 250 bytes), 8 instructions"), std::string::npos)
      << c.line();
}

TEST_F(CoverageOf, LineCountsErrorsOfTheInputToo) {
  Notice n;
  n.severity = Notice::Severity::kError;
  n.code = Code::kBrokenPokeChain;
  n.count = 3;
  capture.notices.push_back(n);
  Coverage c(capture);
  Chunk k = chunk({100, 200, 300});
  k.gaps.push_back(gap(1, Code::kTraceContradictsText, {}));
  c.add(k, 12);
  EXPECT_NE(c.line().find("4 errors in 2 causes"), std::string::npos) << c.line();
}

TEST_F(CoverageOf, ChunksOfUnknownStreamsAreIgnored) {
  Coverage c(capture);
  Chunk k = chunk({100, 200});
  k.stream = 7;
  c.add(k, 8);
  EXPECT_EQ(c.instructions(), 0U);
}

}  // namespace
}  // namespace asof
