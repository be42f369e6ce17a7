// Which event a record is of: ids, trailers, unknown types.
#include "decoder/perf/records.h"
#include "tests/decoder/perf/perf_bytes.h"

namespace asof::test {
namespace {

TEST(PerfDataIds, WithoutIdentifierTheIdIsFoundByItsPosition) {
  // TID, TIME, ID, STREAM_ID, CPU
  const uint64_t type = 1 << 1 | 1 << 2 | 1 << 6 | 1 << 9 | 1 << 7;
  for (const bool big : {false, true}) {
    PerfBytes file(big);
    file.attr({.sample_type = type, .ids = {100}}).attr({.type = 8, .sample_type = type, .ids = {200}});
    file.record(3, 0, [](ByteSink& s) {
      s.u32(1);
      s.u32(2);
      s.c_string("c", 8);
      s.u32(1);
      s.u32(2);
      s.u64(555);
      s.u64(200);
      s.u64(0xdead);
      s.u32(6);
      s.u32(0);
    });
    file.record(9, 0, [](ByteSink& s) {
      s.u32(3);
      s.u32(4);
      s.u64(556);
      s.u64(200);
      s.u64(0xdead);
      s.u32(7);
      s.u32(0);
    });
    const auto data = open_bytes(file.file());
    ASSERT_TRUE(data);
    EXPECT_TRUE(data->notices().empty());
    const auto records = records_of(*data);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(records[i].id.attr, &data->attrs()[1]);
      EXPECT_EQ(records[i].id.id, 200U);
      EXPECT_EQ(records[i].id.time, 555 + static_cast<Time>(i));
      EXPECT_EQ(records[i].id.cpu, 6 + static_cast<int>(i));
    }
  }
}

TEST(PerfDataIds, UnknownIdIsReportedAndTheRecordKept) {
  PerfBytes file;
  file.attr({.ids = {1}}).attr({.ids = {2}});
  file.comm("x", {.time = 5, .cpu = 1, .id = 99});
  const auto data = open_bytes(file.file());
  ASSERT_TRUE(data);
  ASSERT_TRUE(notice_of(data->notices(), Code::kUnknownEventId));
  EXPECT_EQ(notice_of(data->notices(), Code::kUnknownEventId)->offset, file.data_offset());
  const auto records = records_of(*data);
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].id.attr, nullptr);
  EXPECT_EQ(records[0].id.time, 5);
}

TEST(PerfDataIds, NoTrailerWithoutSampleIdAll) {
  PerfBytes file;
  file.attr({.flags = 0, .ids = {1}});
  file.record(3, 0, [](ByteSink& s) {
    s.u32(1);
    s.u32(2);
    s.c_string("long enough to hold a trailer of 32 bytes", 8);
  });
  const auto data = open_bytes(file.file());
  ASSERT_TRUE(data);
  const auto records = records_of(*data);
  EXPECT_FALSE(records[0].id.time.has_value());
  EXPECT_EQ(parse_comm(records[0])->comm, "long enough to hold a trailer of 32 bytes");
}

TEST(PerfDataIds, UnknownTypesAreCountedAndSkipped) {
  PerfBytes file;
  file.attr({.ids = {1}});
  file.record(40, 0, {.time = 3}, [](ByteSink& s) { s.u64(1); });
  file.record(200, 0, [](ByteSink& s) { s.u64(1); }).record(200, 0, [](ByteSink&) {});
  file.comm("after", {.time = 5, .id = 1});
  const auto data = open_bytes(file.file());
  ASSERT_TRUE(data);
  EXPECT_EQ(data->record_counts().at(200), 2U);
  EXPECT_EQ(data->record_counts().at(40), 1U);
  EXPECT_EQ(data->record_counts().at(3), 1U);
  ASSERT_TRUE(notice_of(data->notices(), Code::kUnknownRecordsSkipped));
  EXPECT_EQ(records_of(*data)[0].id.time, 3);  // kernel records keep their trailer whatever their type
}

}  // namespace
}  // namespace asof::test
