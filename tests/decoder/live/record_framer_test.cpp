// RecordFramer: where rounds end does not depend on how the pipe is cut, and sizes that lie end what it knows.
#include "decoder/live/record_framer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/support/live_pipe.h"

namespace asof::test {
namespace {

LivePipe demo_pipe() {
  CaptureOptions options;
  options.symfs = ASOF_TEST_DATA "/demo/symfs";
  return as_live_pipe(ASOF_TEST_DATA "/demo/perf.data", 12, options);
}

RecordFramer framed(std::span<const uint8_t> bytes, size_t piece) {
  RecordFramer out;
  for (size_t at = 0; at < bytes.size(); at += piece)
    out.feed(bytes.subspan(at, std::min(piece, bytes.size() - at)));
  return out;
}

TEST(RecordFramer, RoundsEndWhereTheyDo) {
  const LivePipe pipe = demo_pipe();
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{16}, size_t{4096}, pipe.bytes.size()}) {
    const RecordFramer framer = framed(pipe.bytes, piece);
    EXPECT_TRUE(framer.is_pipe());
    EXPECT_EQ(framer.rounds(), pipe.round_ends.size()) << piece;
    EXPECT_EQ(framer.round_end(), pipe.round_ends.back()) << piece;
    EXPECT_GT(framer.trace_bytes(), 10'000U);
  }
  for (size_t k = 0; k < pipe.round_ends.size(); ++k) {
    EXPECT_EQ(framed(std::span(pipe.bytes).first(pipe.round_ends[k]), 100).rounds(), k + 1);
    EXPECT_EQ(framed(std::span(pipe.bytes).first(pipe.round_ends[k] - 8), 100).rounds(), k);
  }
}

TEST(RecordFramer, AfterAnImpossibleSizeNoRoundCounts) {
  const LivePipe sound = demo_pipe();
  for (const uint8_t size : {uint8_t{0}, uint8_t{7}}) {
    LivePipe pipe = sound;
    pipe.bytes[pipe.round_ends[3] - 2] = size;  // of the FINISHED_ROUND
    EXPECT_EQ(framed(pipe.bytes, 50).rounds(), 3U);
  }
}

TEST(RecordFramer, FilesAndOtherThingsAreNoPipes) {
  std::vector<uint8_t> bytes = demo_pipe().bytes;
  bytes[8] = 104;  // the header of a file
  EXPECT_FALSE(framed(bytes, 5).is_pipe());
  EXPECT_TRUE(framed(bytes, 5).may_be_perf_data());
  bytes[0] = 'X';
  EXPECT_FALSE(framed(bytes, 5).may_be_perf_data());
}

}  // namespace
}  // namespace asof::test
