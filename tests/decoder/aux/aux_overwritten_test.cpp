// Trace that was overwritten before perf read it: what an AUX record hands over is newer than the record.
#include <gtest/gtest.h>

#include "tests/decoder/capture_test_util.h"
#include "tests/support/pt_writer.h"

namespace asof::test {
namespace {

constexpr Addr kText = Recording::kText;

class Overwritten : public testing::Test {
 protected:
  // A sync point with trace_time, in a record with record_time, after the last one.
  void record(uint64_t trace_time, uint64_t record_time) {
    PtWriter pt;
    PsbPlus group;
    group.tsc = trace_time;
    group.ip = kText;
    pt.psb_plus(group);
    pt.tip(kText + 0x100);
    pt.flush();
    recording.writer.aux(bytes.size(), pt.bytes().size(), 0, Recording::at(record_time, 1));
    bytes.insert(bytes.end(), pt.bytes().begin(), pt.bytes().end());
    begins.push_back(bytes.size());
  }
  const Stream& open() {
    recording.writer.auxtrace({.offset = 0, .reference = 1, .idx = 1, .cpu = 1}, bytes);
    auto opened = recording.open();
    EXPECT_TRUE(opened.has_value());
    capture = std::move(*opened);
    return capture.streams.at(1);
  }
  Recording recording;
  Capture capture;
  Bytes bytes;
  std::vector<size_t> begins{0};
};

TEST_F(Overwritten, IsCutWhereItBegins) {
  record(100'000, 150'000);
  record(500'000, 250'000);  // newer than its record
  record(600'000, 350'000);  // continues
  record(300'000, 450'000);  // the rest of the old trace: the decoder sees the decreasing time
  const Stream& stream = open();
  ASSERT_EQ(stream.pieces.size(), 2U);
  EXPECT_EQ(stream.pieces[1].offset, begins[1]);
  EXPECT_TRUE(stream.pieces[1].discontinuity);
  ASSERT_EQ(stream.losses.size(), 1U);
  EXPECT_EQ(stream.losses[0].code, Code::kTraceOverwritten);
  EXPECT_EQ(stream.losses[0].offset, begins[1]);
  EXPECT_EQ(stream.losses[0].time, 150'000) << "of the record before: what was overwritten is later";
}

TEST_F(Overwritten, IsNotWhatARecordHandsOverInTime) {
  record(100'000, 150'000);
  record(250'001, 250'000);  // within the error of the conversion
  record(300'000, 350'000);
  const Stream& stream = open();
  EXPECT_EQ(stream.pieces.size(), 1U);
  EXPECT_TRUE(stream.losses.empty());
}

TEST_F(Overwritten, IsNotToldByARecordWithoutATime) {
  record(100'000, 150'000);
  record(500'000, 0);
  record(600'000, 650'000);
  const Stream& stream = open();
  EXPECT_EQ(stream.pieces.size(), 1U);
  EXPECT_TRUE(stream.losses.empty());
}

}  // namespace
}  // namespace asof::test
