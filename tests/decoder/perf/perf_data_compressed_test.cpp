// COMPRESSED and COMPRESSED2 records: one zstd stream per file, records cut between them, damage, bombs.
#include <fmt/format.h>
#include <zstd.h>

#include "decoder/perf/records.h"
#include "tests/decoder/perf/perf_bytes.h"

namespace asof::test {
namespace {

// Packs pieces as one zstd stream, flushed after each, as perf does.
class Packer {
 public:
  Packer() : context_(ZSTD_createCCtx()) {}
  ~Packer() { ZSTD_freeCCtx(context_); }
  Packer(const Packer&) = delete;
  Packer& operator=(const Packer&) = delete;
  Bytes pack(const Bytes& bytes) {
    Bytes out(ZSTD_compressBound(bytes.size()) + 64);
    ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    EXPECT_EQ(ZSTD_compressStream2(context_, &to, &in, ZSTD_e_flush), 0U);
    out.resize(to.pos);
    return out;
  }

 private:
  ZSTD_CCtx* context_;
};

void add_packed(PerfBytes& file, uint32_t type, const Bytes& packed) {
  file.record(type, 0, [&](ByteSink& s) {
    if (type == 83) s.u64(packed.size());
    s.raw(packed);
    if (type == 83) s.align(8);
  });
}

Bytes slice(const Bytes& bytes, size_t from, size_t to) {
  return Bytes(bytes.begin() + static_cast<ptrdiff_t>(from), bytes.begin() + static_cast<ptrdiff_t>(to));
}

Bytes comm_bytes(const std::string& name, uint64_t time) {
  PerfBytes part;
  part.comm(name, {.time = time, .cpu = 1, .pid = 2, .tid = 3, .id = 5});
  return part.data();
}

class PerfCompressed : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Types, PerfCompressed, ::testing::Values(81U, 83U));

TEST_P(PerfCompressed, RecordsCutBetweenBlocksAreDeliveredOnceAndInOrder) {
  Bytes stream;
  std::vector<std::string> expected;
  for (int i = 0; i < 40; ++i) {
    expected.push_back(fmt::format("task{}", i));
    const Bytes record = comm_bytes(expected.back(), 100 + static_cast<uint64_t>(i));
    stream.insert(stream.end(), record.begin(), record.end());
  }
  for (const size_t block : {1UL, 7UL, 56UL, 100UL, 1000UL, stream.size()}) {
    PerfBytes file;
    file.attr({.ids = {5}});
    file.comm("before", {.time = 1, .id = 5});
    Packer packer;
    for (size_t at = 0; at < stream.size(); at += block) {
      add_packed(file, GetParam(), packer.pack(slice(stream, at, std::min(at + block, stream.size()))));
    }
    file.comm("after", {.time = 9, .id = 5});
    const auto data = open_bytes(file.file());
    ASSERT_TRUE(data);
    EXPECT_TRUE(data->notices().empty()) << data->notices()[0].reason;
    auto comms = comms_of(*data);
    ASSERT_EQ(comms.size(), 42U) << block;
    EXPECT_EQ(comms.front(), "before");
    EXPECT_EQ(comms.back(), "after");
    EXPECT_EQ(std::vector<std::string>(comms.begin() + 1, comms.end() - 1), expected);
    EXPECT_EQ(data->record_counts().at(3), 42U);
    EXPECT_EQ(data->record_counts().at(GetParam()), (stream.size() + block - 1) / block);
    const auto records = records_of(*data);
    EXPECT_EQ(records[1].id.time, 100);
    EXPECT_EQ(records[1].unpacked_offset, 0U);
    EXPECT_EQ(records[0].unpacked_offset, Error::kNoOffset);
    EXPECT_EQ(records_of(*data).size(), 42U);  // walking again gives the same
  }
}

TEST_P(PerfCompressed, PlainRecordsBetweenBlocksKeepTheirOrder) {
  PerfBytes file;
  file.attr({.ids = {5}});
  Packer packer;
  add_packed(file, GetParam(), packer.pack(comm_bytes("a", 1)));
  file.comm("b", {.time = 2, .id = 5});
  file.auxtrace(0, 0, -1, 0, Bytes(64, 0x99));
  add_packed(file, GetParam(), packer.pack(comm_bytes("c", 3)));
  const auto data = open_bytes(file.file());
  EXPECT_EQ(comms_of(*data), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(data->aux_buffers().size(), 1U);
}

TEST_P(PerfCompressed, DamageLosesTheRestOfTheStreamUpToANewFrame) {
  PerfBytes file;
  file.attr({.ids = {5}});
  Packer first, second;
  add_packed(file, GetParam(), first.pack(comm_bytes("good", 1)));
  first.pack(comm_bytes("never written", 2));
  Bytes bad = first.pack(comm_bytes("bad", 2));
  bad[0] |= 6;  // block type 3 does not exist
  add_packed(file, GetParam(), bad);
  add_packed(file, GetParam(), first.pack(comm_bytes("hangs on the bad one", 3)));
  add_packed(file, GetParam(), second.pack(comm_bytes("new frame", 4)));
  file.comm("plain", {.time = 5, .id = 5});
  const auto data = open_bytes(file.file());
  ASSERT_TRUE(data);
  EXPECT_EQ(comms_of(*data), (std::vector<std::string>{"good", "new frame", "plain"}));
  size_t reported = 0;
  for (const Notice& notice : data->notices())
    reported += notice.code == Code::kBadCompressedRecord ? 1U : 0U;
  EXPECT_EQ(reported, 2U);
}

// What was carried over before the damage is not the beginning of what comes after it.
TEST_P(PerfCompressed, RecordCutBeforeDamageIsNotJoinedToTheNewFrame) {
  PerfBytes file;
  file.attr({.ids = {5}});
  Packer first, second;
  Bytes stream = comm_bytes("good", 1);
  const Bytes cut = comm_bytes("cut", 2);
  stream.insert(stream.end(), cut.begin(), cut.begin() + 30);
  add_packed(file, GetParam(), first.pack(stream));
  Bytes bad = first.pack(slice(cut, 30, cut.size()));
  bad[0] |= 6;
  add_packed(file, GetParam(), bad);
  const Bytes again = comm_bytes("again", 3), after = comm_bytes("after", 4);
  add_packed(file, GetParam(), second.pack(again));
  add_packed(file, GetParam(), second.pack(after));
  const auto data = open_bytes(file.file());
  EXPECT_EQ(comms_of(*data), (std::vector<std::string>{"good", "again", "after"}));
  EXPECT_TRUE(notice_of(data->notices(), Code::kRecordTruncated));
}

TEST_P(PerfCompressed, RecordCutAtTheEndOfTheStreamIsReported) {
  PerfBytes file;
  file.attr({.ids = {5}});
  Packer packer;
  Bytes stream = comm_bytes("whole", 1);
  const Bytes second = comm_bytes("cut", 2);
  stream.insert(stream.end(), second.begin(), second.end() - 9);
  add_packed(file, GetParam(), packer.pack(stream));
  const auto data = open_bytes(file.file());
  EXPECT_EQ(comms_of(*data), (std::vector<std::string>{"whole"}));
  ASSERT_TRUE(notice_of(data->notices(), Code::kRecordTruncated));
  EXPECT_EQ(notice_of(data->notices(), Code::kRecordTruncated)->offset, file.data_offset());
}

TEST_P(PerfCompressed, BombIsStopped) {
  PerfBytes file;
  file.attr({.ids = {5}});
  Packer packer;
  add_packed(file, GetParam(), packer.pack(comm_bytes("good", 1)));
  for (int i = 0; i < 3; ++i) add_packed(file, GetParam(), packer.pack(Bytes(32U << 20)));  // 96 MiB of zeros
  const auto data = open_bytes(file.file());
  ASSERT_TRUE(data);
  EXPECT_TRUE(notice_of(data->notices(), Code::kCompressedTooLarge));
  EXPECT_EQ(comms_of(*data), (std::vector<std::string>{"good"}));
}

TEST(PerfCompressed2, LengthBeyondTheRecordIsReported) {
  PerfBytes file;
  file.attr({.ids = {5}});
  Packer packer;
  const Bytes packed = packer.pack(comm_bytes("x", 1));
  file.record(83, 0, [&](ByteSink& s) {
    s.u64(packed.size() + 100);
    s.raw(packed);
    s.align(8);
  });
  file.comm("after", {.time = 5, .id = 5});
  const auto data = open_bytes(file.file());
  EXPECT_TRUE(notice_of(data->notices(), Code::kBadCompressedRecord));
  EXPECT_EQ(comms_of(*data), (std::vector<std::string>{"after"}));
}

}  // namespace
}  // namespace asof::test
