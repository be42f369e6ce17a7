// Streams from snapshots and AUX samples: what overlaps is joined.
#include "tests/decoder/aux/aux_made.h"

namespace asof::test {
namespace {

TEST(AuxOverlap, FindsWhereTheLaterCopyContinues) {
  const Bytes ring = trace(8192);
  const Bytes a = part(ring, 0, 5000), b = part(ring, 3000, 8192);
  const auto skip = find_overlap(a, b);
  ASSERT_TRUE(skip);
  EXPECT_EQ(*skip, 2000U);
  EXPECT_EQ(find_overlap(a, a), a.size());                // nothing new
  EXPECT_FALSE(find_overlap(a, part(ring, 5000, 8192)));  // adjacent, but nothing shows it
  EXPECT_FALSE(find_overlap(a, trace(4096, 2)));          // a different time
  EXPECT_FALSE(find_overlap(a, Bytes(4096, 0x55)));       // no PSB
  EXPECT_FALSE(find_overlap({}, b));
  Bytes changed = b;
  changed[1990] ^= 1;
  EXPECT_FALSE(find_overlap(a, changed));
}

TEST(AuxOverlap, ShortLikenessIsChance) {
  Bytes a = trace(2048), b = trace(2048, 2);
  a.resize(1536 + 16 + 30);                         // ends 30 bytes after a PSB
  std::copy(a.begin() + 1536, a.end(), b.begin());  // and b happens to start with the same bytes
  EXPECT_FALSE(find_overlap(a, b));
}

// With quadratic time this would take hours.
TEST(AuxOverlap, NothingButPsbsTakesLinearTime) {
  Bytes psbs(8U << 20);
  for (size_t i = 0; i < psbs.size(); ++i) psbs[i] = i % 2 != 0 ? 0x82 : 0x02;
  Bytes other = psbs;
  other[(4U << 20) + 1] = 0x55;
  EXPECT_TRUE(find_overlap(psbs, psbs));
  find_overlap(psbs, other);
}

TEST(AuxSnapshots, OverlappingOnesAreStitchedOthersAreNot) {
  const Bytes ring = trace(12288);
  const Bytes other = trace(2048, 9);
  PerfBytes file = start(1);
  // Offsets count from the start of the current pass through the ring and are not usable; flags contain
  // OVERWRITE.
  file.auxtrace(0, 0, -1, 0, part(ring, 0, 4096)).auxtrace(0, 0, -1, 0, part(ring, 2048, 6144));
  file.auxtrace(0, 0, -1, 0, other);
  file.aux(4096, 4096, kOverwrite, cpu0(10)).aux(8192, 4096, kOverwrite, cpu0(20));
  const Made made = make(file);
  const Stream& stream = made.one();
  ASSERT_EQ(stream.pieces.size(), 3U);
  EXPECT_TRUE(stream.pieces[0].discontinuity);
  EXPECT_FALSE(stream.pieces[1].discontinuity);
  EXPECT_TRUE(stream.pieces[2].discontinuity);
  Bytes expected = part(ring, 0, 6144);
  expected.insert(expected.end(), other.begin(), other.end());
  EXPECT_EQ(made.bytes(), expected);
  EXPECT_TRUE(stream.losses.empty());
  EXPECT_EQ(stream.bounds.hi, 20);
  EXPECT_TRUE(notice_of(made.notices, Code::kSnapshotsDoNotJoin));
}

TEST(AuxSnapshots, PaddingOfTheEarlierOneDoesNotHideTheOverlap) {
  const Bytes ring = trace(8192);
  PerfBytes file = start(1);
  file.auxtrace(0, 0, -1, 0, part(ring, 0, 4093)).auxtrace(0, 0, -1, 0, part(ring, 1024, 8192));
  const Made made = make(file);
  ASSERT_EQ(made.one().pieces.size(), 2U);
  EXPECT_FALSE(made.one().pieces[1].discontinuity);
  EXPECT_EQ(made.one().pieces[1].offset, 4093U);
  EXPECT_EQ(made.bytes(), ring);
}

TEST(AuxSnapshots, SamplesAreBuffersOfTheirQueue) {
  const Bytes ring = trace(8192);
  PerfBytes file;
  const uint64_t type = kUsualSampleType | 1 << 20;
  file.attr({.type = 8, .sample_type = type, .ids = {5, 6}});
  file.intel_pt_info(0, 1);
  file.record(69, 0, [](ByteSink& s) {
    s.u64(2);
    for (const uint64_t v : {uint64_t{5}, uint64_t{0}, uint64_t{0}, UINT64_MAX}) s.u64(v);
    for (const uint64_t v : {uint64_t{6}, uint64_t{1}, uint64_t{1}, UINT64_MAX}) s.u64(v);
  });
  const auto add = [&](uint64_t id, uint32_t cpu, uint64_t time, const Bytes& bytes) {
    file.record(9, 2, [&](ByteSink& s) {
      s.u64(id);
      s.u32(9);
      s.u32(9);
      s.u64(time);
      s.u32(cpu);
      s.u32(0);
      s.u64(bytes.size());
      s.raw(bytes);
    });
  };
  add(5, 0, 100, part(ring, 0, 2048));
  add(6, 1, 150, part(ring, 4096, 6144));
  add(5, 0, 200, part(ring, 1024, 3072));
  const Made made = make(file);
  ASSERT_EQ(made.streams.size(), 2U);
  EXPECT_EQ(made.streams[0].pieces.size(), 2U);
  EXPECT_EQ(made.streams[0].end(), 3072U);
  EXPECT_FALSE(made.streams[0].pieces[1].discontinuity);
  EXPECT_EQ(made.streams[0].bounds.hi, 200);
  EXPECT_EQ(made.streams[1].name, "cpu1");
  EXPECT_EQ(made.streams[1].end(), 2048U);
}

}  // namespace
}  // namespace asof::test
