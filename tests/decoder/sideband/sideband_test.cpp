// Records to facts: what is taken, what is left out and reported, in which order.
#include "decoder/sideband/sideband.h"

#include <gtest/gtest.h>

#include "tests/decoder/capture_test_util.h"

namespace asof {
namespace {

using namespace test;

class Facts : public ::testing::Test {
 protected:
  SideBand read() {
    r.writer.write_file(r.dir / "perf.data");
    auto data = PerfData::open((r.dir / "perf.data").string());
    EXPECT_TRUE(data.has_value());
    data_ = *data;
    SideBand side = read_side_band(*data_, book_);
    notices_ = book_.take();
    return side;
  }
  size_t count(Code code) const {
    return static_cast<size_t>(
        std::count_if(notices_.begin(), notices_.end(), [&](const Notice& n) { return n.code == code; }));
  }
  void raw_poke(Addr addr, uint16_t old_len, uint16_t new_len, size_t have, uint64_t time,
                uint16_t misc = 1) {
    ByteSink body;
    body.u64(addr), body.u16(old_len), body.u16(new_len), body.zeros(have), body.align(8);
    const Trailer t = Recording::at(time);
    r.writer.record(20, misc, body.bytes(), &t);
  }
  Recording r;
  std::shared_ptr<const PerfData> data_;
  NoticeBook book_;
  std::vector<Notice> notices_;
};

TEST_F(Facts, MalformedPokesAreLeftOutWithTheirOffset) {  // [L09]
  raw_poke(Recording::kText, 40, 40, 12, 100);            // longer than the record
  raw_poke(Recording::kText, 0, 0, 4, 200);               // nothing
  raw_poke(0x401000, 2, 2, 4, 300);                       // user address
  raw_poke(Recording::kText, 2, 5, 12, 400);              // cannot grow in place
  raw_poke(~0ULL - 1, 5, 5, 12, 500);                     // beyond the address space
  raw_poke(Recording::kText, 2, 2, 4, 0);                 // no time
  raw_poke(Recording::kText, 2, 2, 4, 600, 2);            // not the host's kernel by its cpumode
  raw_poke(Recording::kText, 2, 2, 20, 650);              // more than padding after its bytes
  raw_poke(Recording::kText, 2, 2, 4, 700);
  const SideBand side = read();
  ASSERT_EQ(side.pokes.size(), 1U);
  EXPECT_EQ(side.pokes[0].time, 700);
  EXPECT_EQ(count(Code::kBadSideBandRecord), 8U);
  for (const Notice& n : notices_) EXPECT_NE(n.offset, Error::kNoOffset);
}

TEST_F(Facts, MappingsNotOfWholePagesAreLeftOut) {
  const auto map = [&](Addr addr, uint64_t pgoff, const char* file, Time time) {
    r.writer.mmap2({.pid = 7, .addr = addr, .len = 0x2000, .pgoff = pgoff, .filename = file},
                   Recording::at(time));
  };
  map(0x401000, 0x1000, "/bin/a", 100);
  map(0x4010ff, 0x1000, "/bin/a", 200);
  map(0x401000, 0x1080, "/bin/a", 300);
  map(uint64_t{1} << 60, 0x1000, "/bin/a", 400);
  map((uint64_t{1} << 56) - 0x1000, 0x1000, "/bin/a", 500);
  map(0x7f0000000120, 0x80, "/tmp/jitted-7-3.so", 600);  // perf inject --jit
  const SideBand side = read();
  std::vector<Time> times;
  for (const TaskFact& t : side.tasks) times.push_back(t.time);
  EXPECT_EQ(times, (std::vector<Time>{100, 600}));
  EXPECT_EQ(count(Code::kBadSideBandRecord), 4U);
  EXPECT_FALSE(side.lost.empty());
}

TEST_F(Facts, LossesLieBetweenTwoRecordsOfOneRing) {
  const Bytes one = {1}, two = {2};
  r.writer.text_poke(Recording::kText, one, two, Recording::at(100, 0));
  r.writer.text_poke(Recording::kText + 8, one, two, Recording::at(150, 1));
  r.writer.lost(1, 42, Recording::at(300, 0));
  r.writer.lost(2, 7, Recording::at(310, 3));
  const SideBand side = read();
  ASSERT_EQ(side.lost.size(), 2U);
  EXPECT_EQ(side.lost[0].source, 0U);
  EXPECT_EQ(side.lost[0].after, 100);
  EXPECT_EQ(side.lost[0].until, 300);
  EXPECT_EQ(side.lost[0].count, 42U);
  EXPECT_EQ(side.lost[1].after, kTimeMin);
  EXPECT_EQ(count(Code::kSideBandLost), 2U);
}

// As perf writes LOST_SAMPLES when it ends: with a time and CPU of 0, and the id of the event.
class LostAtTheEnd : public Facts {
 protected:
  LostAtTheEnd() {
    for (const uint64_t id : {11, 12}) r.writer.add_attr({.flags = attr_flag::kSampleIdAll, .ids = {id}});
    const Bytes one = {1}, two = {2};
    r.writer.text_poke(Recording::kText, one, two, {.time = 100, .cpu = 1, .attr = 3, .has_id = true});
    r.writer.text_poke(Recording::kText + 8, one, two, {.time = 150, .cpu = 0, .attr = 2, .has_id = true});
    r.writer.lost(11, 20, {.time = 300, .cpu = 0, .attr = 2, .has_id = true});
    r.writer.text_poke(Recording::kText + 8, two, one, {.time = 900, .cpu = 0, .attr = 2, .has_id = true});
  }
  void index(int64_t cpu0, int64_t cpu1) {
    const PerfDataWriter::IdIndexEntry entries[] = {{.id = 11, .idx = 0, .cpu = cpu0},
                                                    {.id = 12, .idx = 1, .cpu = cpu1}};
    r.writer.id_index(entries);
  }
  void counted(size_t attr, uint64_t count) {
    r.writer.lost_samples(count, {.attr = attr, .has_id = attr != 0});
  }
  std::vector<LostRecords> lost() {
    auto out = read().lost;
    EXPECT_EQ(out.at(0).until, 300);
    out.erase(out.begin());
    return out;
  }
};

TEST_F(LostAtTheEnd, IsOfTheRingOfTheEvent) {
  index(0, 1);
  counted(2, 20), counted(3, 5);
  const auto tails = lost();
  ASSERT_EQ(tails.size(), 1U);
  EXPECT_EQ(tails[0].source, 1U);
  EXPECT_EQ(tails[0].after, 100);
  EXPECT_EQ(tails[0].until, kTimeMax);
  EXPECT_EQ(tails[0].count, 5U);
}

TEST_F(LostAtTheEnd, NothingMoreThanLostRecordsSay) {
  index(0, 1);
  counted(2, 20);
  EXPECT_TRUE(lost().empty());
}

TEST_F(LostAtTheEnd, RingsOfThreadsAreToldApartAlthoughTheirCpusAreNot) {
  index(-1, -1);
  counted(2, 20), counted(3, 5);
  const auto tails = lost();
  ASSERT_EQ(tails.size(), 1U);
  EXPECT_EQ(tails[0].source, UINT32_MAX);
  EXPECT_EQ(tails[0].after, 100);
}

// Of any ring, whose last record may be the earliest of all.
TEST_F(LostAtTheEnd, OfUnknownRings) {
  counted(0, 20), counted(0, 5);
  const auto tails = lost();
  ASSERT_EQ(tails.size(), 1U);
  EXPECT_EQ(tails[0].source, UINT32_MAX);
  EXPECT_EQ(tails[0].after, 100);
  EXPECT_EQ(tails[0].count, 5U);
}

TEST_F(LostAtTheEnd, OfUnknownRingsAsMuchAsLostRecordsSay) {
  counted(0, 15), counted(0, 5);
  EXPECT_TRUE(lost().empty());
}

// A loss in one ring lies after the last record of that ring, whichever CPU its task ran on.
TEST_F(Facts, LossOfAThreadLiesBetweenRecordsOfItsRing) {
  for (const uint64_t id : {11, 12}) r.writer.add_attr({.flags = attr_flag::kSampleIdAll, .ids = {id}});
  const PerfDataWriter::IdIndexEntry entries[] = {{.id = 11, .idx = 0, .tid = 7},
                                                  {.id = 12, .idx = 1, .tid = 8}};
  r.writer.id_index(entries);
  r.writer.comm(7, 7, "a", false, {.time = 100, .cpu = 0, .attr = 2, .has_id = true});
  r.writer.comm(8, 8, "b", false, {.time = 250, .cpu = 1, .attr = 3, .has_id = true});
  r.writer.lost(11, 20, {.time = 300, .cpu = 1, .attr = 2, .has_id = true});
  const SideBand side = read();
  ASSERT_EQ(side.lost.size(), 1U);
  EXPECT_EQ(side.lost[0].after, 100);
}

TEST_F(Facts, AreSortedByTimeWithMadeUpOnesFirst) {
  r.writer.ksymbol(0xffffffffc0001000, 16, 1, 0, "b", Recording::at(200, 1));
  r.writer.ksymbol(0xffffffffc0002000, 16, 1, 0, "a", Recording::at(100, 0));
  r.writer.ksymbol(0xffffffffc0003000, 16, 1, 0, "old", {});
  r.writer.ksymbol(0xffffffffc0004000, 0, 1, 0, "empty", Recording::at(300, 0));
  r.writer.ksymbol(0x4000, 16, 1, 0, "user", Recording::at(300, 0));
  const SideBand side = read();
  ASSERT_EQ(side.ksymbols.size(), 3U);
  EXPECT_EQ(side.ksymbols[0].name, "old");
  EXPECT_EQ(side.ksymbols[0].time, kTimeMin);
  EXPECT_EQ(side.ksymbols[1].name, "a");
  EXPECT_EQ(side.ksymbols[2].name, "b");
  EXPECT_EQ(count(Code::kBadSideBandRecord), 2U);
  EXPECT_EQ(side.first_time, 100);
  EXPECT_EQ(side.last_time, 300);
}

TEST_F(Facts, ManyBadRecordsBecomeFewNotices) {
  for (uint64_t i = 0; i < 1000; ++i) raw_poke(Recording::kText, 0, 0, 4, 100 + i);
  read();
  EXPECT_EQ(count(Code::kBadSideBandRecord), NoticeBook::kMostOfOneCode);
  uint64_t all = 0;
  for (const Notice& n : notices_) all += n.code == Code::kBadSideBandRecord ? n.count : 0;
  EXPECT_EQ(all, 1000U);
}

TEST_F(Facts, CompressedRecordsGiveTheSameFacts) {
  for (Compression kind : {Compression::kRecord81, Compression::kRecord83}) {
    Recording packed;
    packed.writer = PerfDataWriter({.compression = kind, .compressed_block = 100});
    packed.writer.add_attr({.flags = attr_flag::kSampleIdAll | attr_flag::kTextPoke, .ids = {1, 2}});
    Trailer t{.time = 1000, .cpu = 1, .attr = 0, .has_id = true};
    const Bytes one = {1, 1}, two = {2, 2};
    for (uint64_t i = 0; i < 50; ++i, ++t.time)
      packed.writer.text_poke(Recording::kText + 8 * i, one, two, t);
    packed.writer.write_file(packed.dir / "perf.data");
    auto data = PerfData::open((packed.dir / "perf.data").string());
    ASSERT_TRUE(data.has_value());
    NoticeBook book;
    const SideBand side = read_side_band(**data, book);
    ASSERT_EQ(side.pokes.size(), 50U);
    for (const Poke& poke : side.pokes) {  // the bytes outlive the walk
      EXPECT_EQ(Bytes(poke.old_bytes.begin(), poke.old_bytes.end()), one);
      EXPECT_EQ(Bytes(poke.new_bytes.begin(), poke.new_bytes.end()), two);
      EXPECT_EQ(poke.source, 1U);
    }
    EXPECT_TRUE(book.take().empty());
  }
}

}  // namespace
}  // namespace asof
