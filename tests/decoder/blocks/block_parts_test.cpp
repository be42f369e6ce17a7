// Parts of block streams join to the whole; damage to a block stream never goes unnoticed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "decoder/blocks/block_file.h"
#include "decoder/blocks/block_merge.h"
#include "decoder/blocks/block_writer.h"
#include "tests/decoder/blocks/block_copy.h"
#include "tests/decoder/capture_test_util.h"
#include "tests/support/sim_random.h"
#include "tests/support/temp_dir.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

TEST(BlockParts, MakeTheWhole) {
  const Capture demo = open_demo();
  const auto whole = watch(demo).streams;
  TimeBounds all{kTimeMax, kTimeMin};
  for (const Stream& s : demo.streams) all = {std::min(all.lo, s.bounds.lo), std::max(all.hi, s.bounds.hi)};
  std::vector<PipelineOptions> by_cpu(demo.streams.size()), by_time(3);
  for (size_t i = 0; i < by_cpu.size(); ++i) by_cpu[i].cpus = {demo.streams[i].cpu};
  const Time third = (all.hi - all.lo) / 3;
  by_time[0].time = {kTimeMin, all.lo + third};
  by_time[1].time = {all.lo + third, all.lo + 2 * third};
  by_time[2].time = {all.lo + 2 * third, kTimeMax};
  for (const auto& shards : {by_cpu, by_time}) {
    const TempDir dir;
    Bytes joined;
    fs::create_directory(dir.path() / "parts");
    for (size_t i = 0; i < shards.size(); ++i) {
      const Bytes part = write(demo, shards[i]);
      const auto alone = read(dir, part, fmt::format("parts/{}.blocks", i));
      ASSERT_TRUE(alone.has_value());
      EXPECT_FALSE(watch(*alone).streams == whole);
      joined.insert(joined.end(), part.begin(), part.end());
    }
    const auto one_file = read(dir, joined);
    ASSERT_TRUE(one_file.has_value()) << one_file.error().reason;
    EXPECT_TRUE(watch(*one_file).streams == whole);
    const auto folder = open_capture((dir.path() / "parts").string(), {});
    ASSERT_TRUE(folder.has_value()) << folder.error().reason;
    EXPECT_TRUE(watch(*folder).streams == whole);
  }
}

TEST(BlockParts, OfDifferentRecordingsAreRefused) {
  Bytes joined = write(open_demo());
  const Bytes other = write(open(kData + "/demo-arm64/perf.data"));
  joined.insert(joined.end(), other.begin(), other.end());
  const TempDir dir;
  const auto capture = read(dir, joined);
  ASSERT_FALSE(capture.has_value());
  EXPECT_EQ(capture.error().code, Code::kNotBlockStream);
  EXPECT_EQ(capture.error().offset, joined.size() - other.size());
}

TEST(BlockParts, OfAnotherVersionAreRefused) {
  Bytes bytes = write(open_demo());
  const TempDir dir;
  for (const int version : {0, blocks::kOldestVersion - 1, blocks::kGrowingVersion + 1}) {
    bytes[8] = static_cast<uint8_t>(version);
    const auto capture = read(dir, bytes);
    ASSERT_FALSE(capture.has_value());
    EXPECT_EQ(capture.error().code, Code::kNotBlockStream);
  }
}

// The first part of a file is good, what follows is not: nothing of the file is merged.
TEST(BlockParts, OfARefusedFileAreForgotten) {
  const Capture demo = open_demo();
  Bytes file;
  blocks::BlockWriter::Memory memory;
  blocks::BlockWriter writer(
      demo, [&](std::span<const uint8_t> b) { file.insert(file.end(), b.begin(), b.end()); }, 7,
      {.shard = {0, 2}, .options = 0, .ranges = {}}, false, memory);
  writer.finish();
  const TempDir dir;
  const std::string good = dir / "good", bad = dir / "bad";
  write_bytes(good, file);
  file.insert(file.end(), 100, 0xff);
  write_bytes(bad, file);
  blocks::PartMerger merger(7);
  ASSERT_FALSE(merger.add(std::array{bad})[0].has_value());
  EXPECT_EQ(merger.parts(), 0U);
  ASSERT_TRUE(merger.add(std::array{good})[0].has_value());
  EXPECT_EQ(merger.parts(), 1U);
  EXPECT_EQ(merger.repeated(), 0U);
}

// Two parts of one shard that differ, the second in a file with another one: that file is refused, whole, the rest is not.
TEST(BlockParts, AreTakenInTheOrderOfTheirFiles) {
  const Capture demo = open_demo();
  const auto part = [&](uint32_t index, bool lost) {
    Bytes out;
    blocks::BlockWriter::Memory memory;
    blocks::BlockWriter writer(
        demo, [&](std::span<const uint8_t> b) { out.insert(out.end(), b.begin(), b.end()); }, 7,
        {.shard = {index, 9}, .options = 0, .ranges = {{0, index * 10U, index * 10U + 10U}}}, false, memory);
    Chunk chunk;
    chunk.last = true;
    if (lost) {
      Gap& gap = chunk.gaps.emplace_back();
      gap.begin = index * 10U;
      gap.end = gap.begin + 5;
      gap.code = Code::kBadPacket;
    }
    writer.add(chunk);
    writer.finish();
    return out;
  };
  const TempDir dir;
  std::vector<std::string> paths;
  const auto file = [&](const Bytes& bytes) {
    paths.push_back(dir / std::to_string(paths.size()));
    write_bytes(paths.back(), bytes);
  };
  for (uint32_t i = 2; i < 8; ++i) file(part(i, false));
  const Bytes one = part(1, false), other = part(1, true);
  file(one);
  file(one);
  file(other);
  Bytes both = part(8, false);
  both.insert(both.end(), other.begin(), other.end());
  file(both);
  blocks::PartMerger merger(7);
  const auto added = merger.add(paths);
  ASSERT_EQ(added.size(), paths.size());
  for (size_t i = 0; i < added.size(); ++i) EXPECT_EQ(added[i].has_value(), i < 8) << i;
  EXPECT_EQ(merger.parts(), 7U);
  EXPECT_EQ(merger.repeated(), 1U);
}

// Headers alone are small, but each one costs a map.
TEST(BlockParts, TooManyAreRefused) {
  const Bytes whole = write(open_demo());
  Bytes bytes = whole;
  for (size_t i = 0; i < blocks::kMaxParts; ++i)
    bytes.insert(bytes.end(), whole.begin(), whole.begin() + blocks::kHeaderSize);
  const TempDir dir;
  const auto capture = read(dir, bytes);
  ASSERT_FALSE(capture.has_value());
  EXPECT_EQ(capture.error().code, Code::kNotBlockStream);
}

// True if damage is reported to the user.
bool damage_reported(const Capture& capture, const Watch& seen) {
  return seen.damage_reported || std::ranges::any_of(capture.notices, [](const Notice& n) {
           return n.code == Code::kBadBlockStream || n.code == Code::kBlockStreamTruncated;
         });
}

class BlockDamage : public testing::Test {
 protected:
  // Opens and decodes the damaged stream. Either the flow must be complete, or the damage reported.
  void look_at(const Bytes& bytes, const std::string& what) {
    const auto capture = read(dir_, bytes);
    if (!capture) {
      EXPECT_NE(capture.error().code, Code::kNone) << what;
      ++refused_;
      return;
    }
    if (capture->streams.size() != whole_.size()) {
      ADD_FAILURE() << what << ": wrong number of streams";
      return;
    }
    const Watch seen = watch(*capture);
    if (damage_reported(*capture, seen)) {
      ++reported_;
    } else {
      EXPECT_TRUE(seen.streams == whole_) << what << " is not reported";
    }
    for (size_t i = 0; i < seen.streams.size(); ++i) kept_ += seen.streams[i].instructions;
  }
  const Capture demo_ = open_demo();
  const Bytes bytes_ = write(demo_);
  const std::vector<Seen> whole_ = watch(demo_).streams;
  TempDir dir_;
  size_t refused_ = 0, reported_ = 0;
  uint64_t kept_ = 0;
};

TEST_F(BlockDamage, BitsAreFlipped) {
  SimRandom random(1);
  for (int i = 0; i < 600; ++i) {
    Bytes bytes = bytes_;
    // Every second flip is in the first 256 bytes, to include the description's header.
    const size_t at = random.below(i % 2 == 0 ? bytes.size() : 256);
    bytes[at] ^= static_cast<uint8_t>(1U << random.below(8));
    look_at(bytes, fmt::format("flipped bit of byte {}", at));
  }
  EXPECT_GT(reported_, 200U);
  EXPECT_GT(kept_, 0U);
}

TEST_F(BlockDamage, TheEndIsCut) {
  for (size_t size = 0; size < bytes_.size(); size += size < 200 ? 1 : 97)
    look_at(Bytes(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(size)),
            fmt::format("{} bytes", size));
  EXPECT_GT(reported_, 50U);
  EXPECT_GT(kept_, 0U);
}

TEST_F(BlockDamage, PiecesAreLostRepeatedAndOverwritten) {
  SimRandom random(2);
  for (int i = 0; i < 300; ++i) {
    Bytes bytes = bytes_;
    const auto at = static_cast<std::ptrdiff_t>(random.below(bytes.size() - 64));
    const auto n = static_cast<std::ptrdiff_t>(1 + random.below(63));
    switch (i % 3) {
      case 0:
        bytes.erase(bytes.begin() + at, bytes.begin() + at + n);
        break;
      case 1:
        bytes.insert(bytes.begin() + at, bytes_.begin() + at, bytes_.begin() + at + n);
        break;
      default:
        for (std::ptrdiff_t k = 0; k < n; ++k)
          bytes[static_cast<size_t>(at + k)] = static_cast<uint8_t>(random.below(256));
    }
    look_at(bytes, fmt::format("{} bytes at {}", n, at));
  }
  EXPECT_GT(reported_, 100U);
}

}  // namespace
}  // namespace asof::test
