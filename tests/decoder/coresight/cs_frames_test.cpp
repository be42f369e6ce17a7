// Deformatting of CoreSight frames: compared with the original bytes and OpenCSD's deformatter, and with
// damage.
#include "decoder/coresight/cs_frames.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <ostream>
#include <random>

#include "decoder/coresight/cs_deframer.h"
#include "decoder/io/thrown_error.h"
#include "tests/support/etm_frames.h"
#include "tests/support/etm_opencsd.h"
#include "tests/support/skip_without.h"

namespace asof::test {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes random_bytes(std::mt19937& random, size_t size) {
  Bytes out(size);
  for (uint8_t& byte : out) byte = static_cast<uint8_t>(random());
  return out;
}

struct Mixed {
  Bytes frames;
  std::map<uint8_t, Bytes> sources;
};

// Sources that alternate after a random number of bytes each.
Mixed mix(uint32_t seed, size_t turns, bool sync = false) {
  std::mt19937 random(seed);
  const uint8_t ids[] = {0x10, 0x12, 0x6f, 0x01};
  Mixed out;
  EtmFrames frames(sync);
  for (size_t i = 0; i < turns; ++i) {
    const uint8_t id = ids[random() % 4];
    const Bytes part = random_bytes(random, random() % 40);
    frames.write(id, part);
    auto& all = out.sources[id];
    all.insert(all.end(), part.begin(), part.end());
  }
  frames.flush();
  out.frames = frames.bytes();
  return out;
}

Stream stream_of(const CsFrames& frames, uint8_t id) {
  Stream stream;
  stream.pieces = frames.pieces_of(id);
  return stream;
}

Bytes all_bytes(const Stream& stream) {
  Bytes out, scratch;
  for (const StreamPiece& piece : stream.pieces) {
    const auto bytes = stream.bytes(piece.offset, piece.offset + piece.size(), scratch);
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  return out;
}

std::shared_ptr<const CsFrames> index_one(const Bytes& bytes,
                                          FrameAlignment alignment = FrameAlignment::kMemory) {
  return CsFrames::index({{.bytes = bytes, .file_offset = 1000}}, alignment);
}

TEST(CsFrames, GiveEachSourceItsBytes) {
  const Mixed mixed = mix(1, 20000);
  const auto frames = index_one(mixed.frames);
  ASSERT_EQ(frames->sources().size(), mixed.sources.size());
  EXPECT_EQ(frames->losses().unsynced + frames->losses().partial, 0U);
  for (const auto& [id, bytes] : mixed.sources) {
    EXPECT_EQ(all_bytes(stream_of(*frames, id)), bytes) << unsigned{id};
  }
  EXPECT_EQ(frames->bytes_of(0x33), nullptr);
}

// Any part of a source can be read, and is at the reported position in the file.
TEST(CsFrames, PartsAndTheirOffsets) {
  const Mixed mixed = mix(2, 20000);
  const auto frames = index_one(mixed.frames);
  std::mt19937 random(3);
  Bytes scratch;
  for (const auto& [id, bytes] : mixed.sources) {
    const Stream stream = stream_of(*frames, id);
    ASSERT_EQ(stream.end(), bytes.size());
    for (int i = 0; i < 200; ++i) {
      const uint64_t from = random() % bytes.size();
      const uint64_t to = from + random() % std::min<uint64_t>(bytes.size() - from + 1, 5000);
      const auto part = stream.bytes(from, to, scratch);
      ASSERT_TRUE(std::equal(part.begin(), part.end(), bytes.begin() + static_cast<ptrdiff_t>(from)));
      ASSERT_EQ(part.size(), to - from);
      const auto position = stream.file_offset(from);
      ASSERT_TRUE(position.has_value());
      ASSERT_GE(*position, 1000U);
      // The lowest bit of a byte in an even slot is stored elsewhere in the frame.
      ASSERT_EQ(mixed.frames[*position - 1000] | 1U, bytes[from] | 1U);
    }
    EXPECT_FALSE(stream.file_offset(bytes.size()).has_value());
  }
}

// The index is small for any length of trace.
TEST(CsFrames, IndexIsSmall) {
  const Mixed mixed = mix(4, 200000);
  const auto frames = index_one(mixed.frames);
  size_t counts = 0;
  for (const auto& source : frames->sources()) counts += source.counts.size() + source.breaks.size();
  EXPECT_LT(counts * sizeof(uint64_t), mixed.frames.size() / 100);
}

// A formatter restarts with each section: bytes before its first ID belong to no source. However few
// positions the index may hold, any part of any source is the same, even of a source that starts late.
TEST(CsFrames, IndexOfFewPositionsGivesTheSame) {
  std::mt19937 random(5);
  EtmFrames frames(false);
  std::map<uint8_t, Bytes> sources;
  for (size_t i = 0; i < 9000; ++i) {
    const auto id = static_cast<uint8_t>(0x10 + random() % (1 + i / 1000));
    const Bytes part = random_bytes(random, random() % 60);
    frames.write(id, part);
    sources[id].insert(sources[id].end(), part.begin(), part.end());
  }
  frames.flush();
  const Bytes bytes = frames.bytes();
  ASSERT_GT(bytes.size(), 40U * 4096);
  for (const size_t most : {2U, 3U, 4U, 7U, 16U}) {
    const auto index = CsFrames::index({{.bytes = bytes}}, FrameAlignment::kMemory, most);
    ASSERT_EQ(index->sources().size(), sources.size());
    for (const CsFrames::Source& source : index->sources()) {
      EXPECT_LE(source.counts.size(), most);
      const Bytes& want = sources[source.id];
      EXPECT_EQ(all_bytes(stream_of(*index, source.id)), want) << most << " " << unsigned{source.id};
      const auto of = index->bytes_of(source.id);
      for (int i = 0; i < 20; ++i) {
        const size_t at = random() % want.size();
        Bytes part(std::min<size_t>(want.size() - at, 1 + random() % 100));
        of->read(at, part);
        EXPECT_TRUE(std::equal(part.begin(), part.end(), want.begin() + static_cast<ptrdiff_t>(at)));
      }
    }
  }
}

TEST(CsFrames, SectionsStartWithoutSource) {
  const Mixed mixed = mix(5, 200);
  const Bytes no_id(16, 0x22);
  const auto frames = CsFrames::index({{.bytes = mixed.frames, .file_offset = 0},
                                       {.bytes = no_id, .file_offset = 5000},
                                       {.bytes = mixed.frames, .file_offset = 9000, .discontinuity = true}},
                                      FrameAlignment::kMemory);
  EXPECT_EQ(frames->losses().unassigned, 15U);
  EXPECT_EQ(frames->losses().unassigned_at, 5000U);
  for (const CsFrames::Source& source : frames->sources()) {
    ASSERT_EQ(source.breaks.size(), 2U);
    EXPECT_FALSE(source.breaks[0].discontinuity);
    EXPECT_TRUE(source.breaks[1].discontinuity);
    EXPECT_EQ(source.breaks[1].section, 2U);
    EXPECT_EQ(source.breaks[1].at, source.size / 2);
    EXPECT_EQ(CsFrames::begin_of_section(source, 1), source.size / 2);
    EXPECT_EQ(CsFrames::begin_of_section(source, 3), source.size);
  }
  Bytes twice = mixed.sources.at(0x10);
  twice.insert(twice.end(), mixed.sources.at(0x10).begin(), mixed.sources.at(0x10).end());
  EXPECT_EQ(all_bytes(stream_of(*frames, 0x10)), twice);
}

// Four FSYNCs in a frame: the kernel's mark for a buffer that has lost its beginning.
TEST(CsFrames, BarrierCutsTheStream) {
  Bytes bytes = mix(6, 100).frames;
  const size_t half = bytes.size();
  for (int i = 0; i < 4; ++i) bytes.insert(bytes.end(), {0xff, 0xff, 0xff, 0x7f});
  const Mixed second = mix(7, 100);
  bytes.insert(bytes.end(), second.frames.begin(), second.frames.end());
  const auto frames = index_one(bytes);
  for (const CsFrames::Source& source : frames->sources()) {
    ASSERT_EQ(source.breaks.size(), 2U);
    EXPECT_TRUE(source.breaks[1].discontinuity);
    EXPECT_GE(source.breaks[1].file_offset, 1000 + half + 16);
  }
  EXPECT_EQ(frames->losses().unsynced + frames->losses().partial + frames->losses().unassigned, 0U);
}

TEST(CsFrames, TracePortWithSynchronisation) {
  const Mixed mixed = mix(8, 5000, true);
  // Noise at the beginning, HSYNCs between halfwords.
  Bytes port = {1, 2, 3, 4, 5};
  std::mt19937 random(9);
  for (size_t i = 0; i + 1 < mixed.frames.size(); i += 2) {
    const bool in_fsync = mixed.frames[i] == 0xff;
    if (!in_fsync && random() % 9 == 0) port.insert(port.end(), {0xff, 0x7f});
    port.push_back(mixed.frames[i]);
    port.push_back(mixed.frames[i + 1]);
  }
  const size_t first_sync = 5;
  if (mixed.frames[0] != 0xff) port.insert(port.begin() + first_sync, {0xff, 0xff, 0xff, 0x7f});
  const auto frames = index_one(port, FrameAlignment::kTpiu);
  EXPECT_EQ(frames->losses().unsynced, 5U);
  EXPECT_EQ(frames->losses().unsynced_at, 1000U);
  for (const auto& [id, bytes] : mixed.sources) {
    const Stream stream = stream_of(*frames, id);
    EXPECT_EQ(all_bytes(stream), bytes) << unsigned{id};
    const auto position = stream.file_offset(bytes.size() / 2);
    ASSERT_TRUE(position.has_value());
    EXPECT_EQ(port[*position - 1000] | 1U, bytes[bytes.size() / 2] | 1U);
  }
}

// Whatever the frames contain, every byte of a source can be read, and none is counted twice.
TEST(CsFrames, DamageIsCounted) {
  std::mt19937 random(10);
  for (int round = 0; round < 300; ++round) {
    const bool port = round % 2 != 0;
    Bytes bytes = mix(static_cast<uint32_t>(round), 60, port).frames;
    bytes.resize(bytes.size() - random() % 16);
    for (int i = 0; i < 20; ++i) bytes[random() % bytes.size()] = static_cast<uint8_t>(random());
    if (round % 5 == 0) bytes[random() % bytes.size()] = 0xff;
    const auto frames = index_one(bytes, port ? FrameAlignment::kTpiu : FrameAlignment::kMemory);
    uint64_t total = frames->losses().unassigned + frames->losses().unsynced + frames->losses().partial;
    for (const CsFrames::Source& source : frames->sources()) {
      EXPECT_EQ(all_bytes(stream_of(*frames, source.id)).size(), source.size);
      total += source.size;
    }
    EXPECT_LE(total, bytes.size());
  }
}

// OpenCSD extracts the same bytes from real buffers.
struct RealBuffer {
  const char* file;
  std::vector<uint8_t> ids;
  bool port;
};
void PrintTo(const RealBuffer& r, std::ostream* out) { *out << r.file; }
class CsFramesCorpus : public ::testing::TestWithParam<RealBuffer> {};

TEST_P(CsFramesCorpus, SameBytesAsOpenCsd) {
  const std::string path = std::string(ASOF_SHARED_DIR) + "/corpus/" + GetParam().file;
  SKIP_WITHOUT(path);
  std::ifstream in(path, std::ios::binary);
  Bytes bytes((std::istreambuf_iterator<char>(in)), {});
  if (GetParam().port) {  // without what the probe adds to each block
    Bytes trace;
    for (size_t at = 0; at < bytes.size(); at += 512) {
      const size_t end = std::min(at + 504, bytes.size());
      trace.insert(trace.end(), bytes.begin() + static_cast<ptrdiff_t>(at),
                   bytes.begin() + static_cast<ptrdiff_t>(end));
    }
    bytes = trace;
    const size_t frame = bytes.size() - 12;  // its last frame is cut, which OpenCSD decodes in part
    bytes.resize(frame);
  }
  const auto frames = index_one(bytes, GetParam().port ? FrameAlignment::kTpiu : FrameAlignment::kMemory);
  for (const uint8_t id : GetParam().ids) {
    const Bytes ours = all_bytes(stream_of(*frames, id));
    const Bytes theirs = csd_unformat(etm4_source(id), bytes, GetParam().port);
    ASSERT_FALSE(theirs.empty());
    EXPECT_EQ(ours, theirs) << unsigned{id};
  }
}

INSTANTIATE_TEST_SUITE_P(
    Buffers, CsFramesCorpus,
    ::testing::Values(RealBuffer{"ocsd-juno_r1_1/cstrace.bin", {0x10, 0x11, 0x12, 0x13, 0x15}, false},
                      RealBuffer{"ocsd-juno-uname-002/trace.bin", {0x16}, false},
                      RealBuffer{"ricsec-branches/trace1/cstrace.bin", {0x10}, false},
                      RealBuffer{"ricsec-branches/trace4/cstrace.bin", {0x10}, false},
                      RealBuffer{"ocsd-a55-test-tpiu/DSTREAM_0.bin", {0x01}, true}));

// What the index pass of another process found.
class RestoredFrames : public testing::TestWithParam<FrameAlignment> {
 protected:
  void SetUp() override {
    const Mixed mixed = mix(7, 60000, GetParam() == FrameAlignment::kTpiu);
    frames_ = pristine_ = mixed.frames;
    sections_ = cut(frames_);
    index_ = CsFrames::index(cut(pristine_), GetParam());
    checkpoints_ = index_->checkpoints();
    sources_.assign(index_->sources().begin(), index_->sources().end());
    ASSERT_GT(checkpoints_.size(), 20U);
    ASSERT_TRUE(index_->is_dense());
  }
  // As of two buffers; those of a port need not be cut between frames.
  static std::vector<FrameSection> cut(const Bytes& bytes) {
    if (GetParam() == FrameAlignment::kTpiu) return {{.bytes = bytes, .file_offset = 1000}};
    const size_t half = bytes.size() / 32 * 16;
    return {{.bytes = std::span(bytes).first(half), .file_offset = 1000},
            {.bytes = std::span(bytes).subspan(half), .file_offset = 1000 + half}};
  }
  std::shared_ptr<const CsFrames> restore() const {
    return CsFrames::restore(sections_, GetParam(), checkpoints_, sources_, "plan");
  }
  static Bytes read(const CsFrames& frames, const CsFrames::Source& source, uint64_t at, size_t size) {
    Bytes out(size, 0xee);
    frames.bytes_of(source.id)->read(at, out);
    return out;
  }
  // Of some reads of each source, how many give what the index pass of this process gives; the others throw.
  size_t right_reads(const CsFrames& restored, const CsFrames& own) const {
    std::mt19937 random(9);
    size_t right = 0;
    for (int i = 0; i < 400; ++i) {
      const CsFrames::Source& source = sources_[random() % sources_.size()];
      const size_t size = 1 + random() % 3000;
      if (source.size <= size) continue;
      const uint64_t at = random() % (source.size - size);
      try {
        const Bytes got = read(restored, source, at, size);
        EXPECT_EQ(got, read(own, source, at, size)) << at;
        ++right;
      } catch (const ThrownError& e) {
        EXPECT_EQ(e.error().code, Code::kTraceChanged);
        EXPECT_EQ(e.error().where, "plan");
        EXPECT_GE(e.error().offset, 1000U);
      }
    }
    return right;
  }
  Bytes frames_, pristine_;
  std::vector<FrameSection> sections_;
  std::shared_ptr<const CsFrames> index_;
  std::vector<CsFrames::Checkpoint> checkpoints_;
  std::vector<CsFrames::Source> sources_;
};

TEST_P(RestoredFrames, GiveTheSame) {
  const auto frames = restore();
  ASSERT_TRUE(frames);
  EXPECT_EQ(right_reads(*frames, *index_), 400U);
  for (const CsFrames::Source& s : sources_)
    EXPECT_EQ(read(*frames, s, 0, s.size), read(*index_, s, 0, s.size));
}

// The trace is another than it was: never bytes of what is not there.
TEST_P(RestoredFrames, FramesThatChangedAreNotRead) {
  const auto frames = restore();
  std::fill(frames_.begin() + static_cast<ptrdiff_t>(frames_.size() / 4),
            frames_.begin() + static_cast<ptrdiff_t>(frames_.size() / 2), uint8_t{0});
  const size_t right = right_reads(*frames, *index_);
  EXPECT_GT(right, 150U);
  EXPECT_LT(right, 350U);
}

TEST_P(RestoredFrames, CountsThatLieAreNotBelieved) {
  sources_[1].counts[7] += 1;
  auto frames = restore();
  ASSERT_TRUE(frames);
  EXPECT_THROW(read(*frames, sources_[1], sources_[1].counts[6], 1), ThrownError);
  EXPECT_THROW(read(*frames, sources_[1], sources_[1].counts[7], 1), ThrownError);
  EXPECT_NO_THROW(read(*frames, sources_[1], sources_[1].counts[9], 1));
  sources_[1].counts[7] -= 1;
  // Bytes that are in no frame.
  sources_[2].size += 5;
  frames = restore();
  ASSERT_TRUE(frames);
  EXPECT_THROW(read(*frames, sources_[2], sources_[2].size - 1, 1), ThrownError);
  EXPECT_THROW(frames->bytes_of(sources_[2].id)->file_offset(sources_[2].size - 1), ThrownError);
}

TEST_P(RestoredFrames, AnIndexThatCannotBeIsRefused) {
  const auto refused = [&](const auto& change) {
    const auto checkpoints = checkpoints_;
    const auto sources = sources_;
    change();
    EXPECT_FALSE(restore());
    checkpoints_ = checkpoints;
    sources_ = sources;
  };
  refused([&] { checkpoints_.clear(); });
  refused([&] { checkpoints_[0].offset = 16; });
  refused([&] { checkpoints_[3].section = 9; });
  refused([&] { std::swap(checkpoints_[3].offset, checkpoints_[4].offset); });
  refused([&] { checkpoints_.back().offset = UINT64_MAX; });
  refused([&] { sources_[0].counts.pop_back(); });
  refused([&] { sources_[0].counts[0] = 1; });
  refused([&] { std::swap(sources_[0].counts[1], sources_[0].counts[5]); });
  refused([&] { sources_[0].size = UINT64_MAX; });
  refused([&] { sources_[0].id = 0x70; });
  refused([&] { std::swap(sources_[0], sources_[1]); });
  refused([&] { sources_[0].first_checkpoint = SIZE_MAX; });
  // A read would pass over most of the trace.
  refused([&] {
    checkpoints_.erase(checkpoints_.begin() + 2, checkpoints_.end() - 2);
    for (CsFrames::Source& s : sources_) s.counts.erase(s.counts.begin() + 2, s.counts.end() - 2);
  });
  EXPECT_TRUE(restore());
}

INSTANTIATE_TEST_SUITE_P(Alignment, RestoredFrames,
                         testing::Values(FrameAlignment::kMemory, FrameAlignment::kTpiu),
                         [](const auto& info) {
                           return std::string(info.param == FrameAlignment::kMemory ? "memory" : "port");
                         });

}  // namespace
}  // namespace asof::test
