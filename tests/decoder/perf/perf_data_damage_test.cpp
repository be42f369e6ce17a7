// Damaged files: truncated anywhere, bits flipped anywhere, false sizes. Nothing may crash, hang or go
// unreported, and what is intact after the damage is still read.
#include <set>

#include "decoder/perf/records.h"
#include "tests/decoder/perf/perf_bytes.h"

namespace asof::test {
namespace {

Tail at(uint64_t time) { return {.time = time, .cpu = 0, .pid = 1, .tid = 1, .id = 5}; }

PerfBytes mixed_file() {
  PerfBytes file;
  file.attr({.type = 8, .ids = {5}}).attr({.ids = {6}});
  file.intel_pt_info(0, 1);
  file.comm("a", at(1)).comm("b", at(2));
  file.aux(0, 40, 1, at(3));
  file.auxtrace(0, 0, -1, 0, Bytes(40, 0x77));
  file.finished_round();
  file.comm("c", at(4));
  file.record(20, 1, at(5), [](ByteSink& s) {
    s.u64(0xffffffff81000000);
    s.u16(2);
    s.u16(2);
    s.u32(0x01020304);
  });
  file.aux(40, 8, 0, at(6));
  file.auxtrace(0, 0, -1, 40, Bytes(8, 0x78));
  file.finished_round();
  file.feature(3, [](ByteSink& s) { PerfBytes::put_string(s, "host"); });
  file.feature(12, [](ByteSink& s) {
    s.u32(1);
    s.u32(128);
    s.zeros(128);
    s.u32(1);
    PerfBytes::put_string(s, "intel_pt//");
    s.u64(5);
  });
  file.feature(25, [](ByteSink& s) {
    s.u32(1);
    s.u32(136);
    s.u32(0);
    s.u64(0);
    s.zeros(136);
  });
  return file;
}

// Uses everything in the file, as a reader of the whole would.
size_t exercise(const PerfData& data) {
  size_t seen = 0;
  data.for_each([&](const Record& record) {
    seen += describe_record(record).size() + 1;
    return true;
  });
  std::vector<Notice> notices;
  for (const Stream& stream : make_streams(data, notices)) {
    uint64_t end = 0;
    for (const StreamPiece& piece : stream.pieces) {
      EXPECT_GE(piece.offset, end);
      EXPECT_FALSE(piece.bytes.empty());
      end = piece.offset + piece.bytes.size();
      for (const uint8_t byte : piece.bytes) seen += byte;
    }
  }
  for (int bit = 0; bit < 32; ++bit) seen += data.feature_string(bit).size();
  return seen + data.command_line().size();
}

TEST(PerfDamage, CutAtEveryLength) {
  const PerfBytes source = mixed_file();
  for (const Bytes& whole : {source.file(), source.pipe()}) {
    const TempFile file({});
    const bool is_pipe = whole[8] == 16;
    std::set<uint64_t> sound;  // a cut of a pipe between two records is not damage
    if (is_pipe) {
      const auto data = open_bytes(whole);
      uint64_t last = 16;
      for (const Record& record : records_of(*data)) {
        sound.insert(record.file_offset);
        last = record.file_offset + record.bytes.size();
      }
      sound.insert(last);
    }
    size_t refused = 0, reported = 0;
    for (size_t length = 0; length < whole.size(); ++length) {
      file.rewrite(Bytes(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length)));
      const auto data = PerfData::open(file.path());
      if (!data) {
        ++refused;
        EXPECT_FALSE(data.error().reason.empty());
        continue;
      }
      exercise(**data);
      const bool quiet = (*data)->notices().empty();
      EXPECT_TRUE(!quiet || sound.contains(length)) << "cut at " << length << " was not reported";
      reported += quiet ? 0U : 1U;
    }
    EXPECT_GE(refused, 16U);
    EXPECT_GT(reported, whole.size() / 2);
  }
}

TEST(PerfDamage, EveryBitFlippedOnce) {
  const TempFile file({});
  for (const Bytes& whole : {mixed_file().file(), mixed_file().pipe()}) {
    size_t opened = 0;
    Bytes bytes = whole;
    for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
      const auto mask = static_cast<uint8_t>(1U << (bit % 8));
      bytes[bit / 8] ^= mask;
      file.rewrite(bytes);
      if (const auto data = PerfData::open(file.path())) {
        ++opened;
        exercise(**data);
      }
      bytes[bit / 8] ^= mask;
    }
    EXPECT_GT(opened, whole.size() * 7);
  }
}

TEST(PerfDamage, RecordSmallerThanItsHeaderIsSteppedOver) {
  PerfBytes file;
  file.attr({.ids = {5}});
  file.comm("a", at(1));
  const uint64_t bad_at = file.data_offset() + file.data_size();
  file.record(3, 0, at(2), [](ByteSink& s) { s.zeros(40); });
  file.comm("next", at(3)).finished_round().comm("b", at(4)).comm("c", at(5));
  for (const uint8_t size : {uint8_t{0}, uint8_t{7}}) {
    Bytes bytes = file.file();
    bytes[bad_at + 6] = size;
    bytes[bad_at + 7] = 0;
    const auto data = open_bytes(bytes);
    EXPECT_EQ(comms_of(*data), (std::vector<std::string>{"a", "next", "b", "c"}));
    ASSERT_EQ(data->notices().size(), 1U);
    EXPECT_EQ(data->notices()[0].code, Code::kBadRecordHeader);
    EXPECT_EQ(data->notices()[0].offset, bad_at);
    EXPECT_EQ(data->notices()[0].severity, Notice::Severity::kLoss);
  }
}

// What looks like a header in the content of a damaged record leads to no other record.
TEST(PerfDamage, ReadingGoesOnAtTheFirstRecordThatLeadsToOthers) {
  PerfBytes file;
  file.attr({.ids = {5}});
  file.comm("a", at(1));
  const uint64_t first_bad = file.data_offset() + file.data_size();
  file.record(3, 0, at(2), [](ByteSink& s) {
    s.u64(uint64_t{24} << 48U | 3);  // COMM of 24 bytes: it ends in the middle of this one
    s.zeros(48);
  });
  for (int i = 0; i < 20; ++i) file.comm("between", at(3));
  const uint64_t second_bad = file.data_offset() + file.data_size();
  file.comm("bad", at(4)).comm("b", at(5)).comm("c", at(6));
  Bytes bytes = file.file();
  for (const uint64_t bad : {first_bad, second_bad}) bytes[bad + 6] = bytes[bad + 7] = 0;
  const auto data = open_bytes(bytes);
  std::vector<std::string> expected(20, "between");
  expected.insert(expected.begin(), "a");
  expected.insert(expected.end(), {"b", "c"});
  EXPECT_EQ(comms_of(*data), expected);
  ASSERT_EQ(data->notices().size(), 2U);
  EXPECT_EQ(data->notices()[0].offset, first_bad);
  EXPECT_EQ(data->notices()[1].offset, second_bad);
}

TEST(PerfDamage, RecordPastTheEndGoesOnAtTheNextBuffer) {
  PerfBytes file;
  file.attr({.ids = {5}});
  file.comm("a", at(1));
  const uint64_t bad_at = file.data_offset() + file.data_size();
  file.comm("bad", at(2));
  file.auxtrace(3, 3, -1, 0, Bytes(16, 0x11));
  file.comm("b", at(4));
  Bytes bytes = file.file();
  bytes[bad_at + 7] = 0xff;
  const auto data = open_bytes(bytes);
  EXPECT_EQ(comms_of(*data), (std::vector<std::string>{"a", "b"}));
  ASSERT_EQ(data->aux_buffers().size(), 1U);
  EXPECT_EQ(data->aux_buffers()[0].cpu, 3);
  EXPECT_TRUE(notice_of(data->notices(), Code::kRecordTruncated));
}

TEST(PerfDamage, IndexOfBuffersHelpsWhereNothingElseDoes) {
  PerfBytes file;
  file.attr({.ids = {5}});
  file.comm("a", at(1));
  const uint64_t bad_at = file.data_offset() + file.data_size();
  file.comm("bad", at(2));
  const uint64_t buffer_at = file.data_offset() + file.data_size();
  file.record(71, 0, [](ByteSink& s) {  // 52 bytes, as no perf writes
    for (const uint64_t word : {8, 0, 1}) s.u64(word);
    for (const uint32_t word : {0U, UINT32_MAX, 2U, 0U, 0U}) s.u32(word);
  });
  file.raw(Bytes(8, 0x22));
  const auto open_damaged = [&] {
    Bytes bytes = file.file();
    bytes[bad_at + 6] = 0;
    return open_bytes(bytes);
  };
  EXPECT_TRUE(open_damaged()->aux_buffers().empty());
  file.feature(18, [&](ByteSink& s) {
    s.u64(1);
    s.u64(buffer_at);
    s.u64(48);
  });
  const auto data = open_damaged();
  ASSERT_EQ(data->aux_buffers().size(), 1U);
  EXPECT_EQ(data->aux_buffers()[0].cpu, 2);
  EXPECT_EQ(data->aux_buffers()[0].bytes[0], 0x22);
}

// A size that is possible, but runs over trace that the index names: the trace is no content of the record.
TEST(PerfDamage, RecordOverIndexedTraceIsDamage) {
  PerfBytes file;
  file.attr({.type = 8, .ids = {5}}).attr({.ids = {6}});
  file.intel_pt_info(0, 1);
  const uint64_t bad_at = file.data_offset() + file.data_size();
  file.comm("bad", at(2));
  const uint64_t buffer_at = file.data_offset() + file.data_size();
  file.auxtrace(0, 0, -1, 0, Bytes(4096, 0x77));
  file.comm("after", at(3));
  file.finished_round();
  file.feature(18, [&](ByteSink& s) {
    s.u64(1);
    s.u64(buffer_at);
    s.u64(48);
  });
  Bytes bytes = file.file();
  const auto whole = open_bytes(bytes);
  EXPECT_TRUE(whole->notices().empty());
  ASSERT_EQ(whole->aux_buffers().size(), 1U);
  bytes[bad_at + 6] = 0;
  bytes[bad_at + 7] = 4;  // 1,024 bytes
  const auto data = open_bytes(bytes);
  ASSERT_EQ(data->aux_buffers().size(), 1U);
  EXPECT_EQ(data->aux_buffers()[0].bytes.size(), 4096U);
  ASSERT_EQ(data->notices().size(), 1U);
  EXPECT_EQ(data->notices()[0].code, Code::kBadRecordHeader);
  EXPECT_EQ(data->notices()[0].offset, bad_at);
  ASSERT_EQ(data->passed_over().size(), 1U);
  EXPECT_EQ(data->passed_over()[0].begin, bad_at);
  EXPECT_EQ(data->passed_over()[0].end, buffer_at);
  EXPECT_EQ(data->record_counts().at(3), 1U) << "the COMM after the trace";
}

TEST(PerfDamage, PayloadCutByTheEndIsUsed) {
  PerfBytes file;
  file.attr({.ids = {5}});
  file.comm("a", at(1)).auxtrace(0, 0, -1, 0, Bytes(64, 0x33));
  Bytes bytes = file.file();
  bytes.resize(bytes.size() - 24);
  const auto data = open_bytes(bytes);
  ASSERT_EQ(data->aux_buffers().size(), 1U);
  EXPECT_EQ(data->aux_buffers()[0].bytes.size(), 40U);
  ASSERT_TRUE(notice_of(data->notices(), Code::kAuxtracePastEnd));
  EXPECT_TRUE(notice_of(data->notices(), Code::kPerfDataTruncated));
}

TEST(PerfDamage, PayloadWithALyingSizeEndsAtTheNextRecords) {
  PerfBytes file;
  file.attr({.ids = {5}});
  const uint64_t size_at = file.data_offset() + 8;
  file.auxtrace(0, 0, -1, 0, Bytes(64, 0x33));
  file.finished_round().comm("b", at(4)).comm("c", at(5));
  Bytes bytes = file.file();
  bytes[size_at + 5] = 1;
  const auto data = open_bytes(bytes);
  ASSERT_EQ(data->aux_buffers().size(), 1U);
  EXPECT_EQ(data->aux_buffers()[0].bytes.size(), 64U);
  EXPECT_EQ(comms_of(*data), (std::vector<std::string>{"b", "c"}));
  EXPECT_TRUE(notice_of(data->notices(), Code::kAuxtracePastEnd));
}

TEST(PerfDamage, ManyFaultsOfOneKindAreCountedNotListed) {
  PerfBytes file;
  file.attr({.ids = {1}}).attr({.ids = {2}});
  for (uint64_t i = 0; i < 1000; ++i) file.comm("x", {.time = i + 1, .id = 99});
  const auto data = open_bytes(file.file());
  uint64_t count = 0;
  for (const Notice& notice : data->notices()) count += notice.count;
  EXPECT_EQ(count, 1000U);
  EXPECT_LT(data->notices().size(), 50U);
}

// Each FINISHED_ROUND leads to the next damage: the search for the other mark must not start over each time,
// or this takes hours.
TEST(PerfDamage, ManyDamagedRecordsTakeLinearTime) {
  PerfBytes file;
  file.attr({.ids = {5}});
  for (int i = 0; i < 50000; ++i) {
    for (int round = 0; round < 3; ++round) file.finished_round();
    file.raw(Bytes(16, 0));  // size 0
  }
  const auto data = open_bytes(file.file());
  EXPECT_EQ(data->record_counts().at(68), 150000U);
}

}  // namespace
}  // namespace asof::test
