// Block streams: what is read back equals what was written, step by step, event by event and gap by gap, for
// every available capture; parts join; damage never goes unnoticed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>

#include <filesystem>
#include <fstream>
#include <string>

#include "decoder/blocks/block_file.h"
#include "decoder/blocks/block_writer.h"
#include "decoder/pipeline/pipeline.h"
#include "tests/support/perf_data_writer.h"
#include "tests/support/sim_random.h"
#include "tests/support/temp_dir.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<uint8_t>;

// All that a consumer can see of one stream, except how it is cut into chunks.
struct Seen {
  uint64_t steps = 0, instructions = 0, events = 0, gaps = 0;
  uint64_t hash = 0;
  bool operator==(const Seen&) const = default;
};

class Watch : public ChunkConsumer {
 public:
  explicit Watch(size_t streams) : streams(streams) {}
  void deliver(Chunk& c, const Stream&, Prepared*) override {
    Seen& s = streams[c.stream];
    size_t event = 0, gap = 0;
    const auto before = [&](size_t position) {
      for (; event < c.events.size() && c.events[event].step <= position; ++event) add(s, c.events[event]);
      for (; gap < c.gaps.size() && c.gaps[gap].step <= position; ++gap) add(s, c.gaps[gap]);
    };
    for (auto it = c.steps.begin(); it != c.steps.end(); ++it) {
      before(it.position());
      add(s, *it);
    }
    before(SIZE_MAX);
    starts_ascend = starts_ascend && c.segment_start >= last_start_;
    last_start_ = c.segment_start;
  }
  std::vector<Seen> streams;
  bool starts_ascend = true;
  bool damage_reported = false;

 private:
  static void mix(Seen& s, uint64_t v) { s.hash = (s.hash ^ v) * 0x9E3779B97F4A7C15ULL ^ s.hash >> 29; }
  static void mix(Seen& s, std::string_view text) {
    for (const char c : text) mix(s, static_cast<uint64_t>(c));
  }
  void add(Seen& s, const Step& step) {
    const Block& b = *step.block;
    ++s.steps;
    s.instructions += step.count;
    const bool taken = b.kind == BranchKind::kCond && (step.flags & Step::kTaken) != 0;
    for (const uint64_t v :
         {b.ip, b.target, uint64_t{b.size}, uint64_t{b.count}, uint64_t{b.mode},
          static_cast<uint64_t>(b.kind), uint64_t{b.space}, uint64_t{b.origin}, static_cast<uint64_t>(b.from),
          static_cast<uint64_t>(b.until), b.hash, b.power, static_cast<uint64_t>(step.time),
          uint64_t{step.count}, static_cast<uint64_t>(step.confidence),
          static_cast<uint64_t>(step.flags & ~Step::kTaken), static_cast<uint64_t>(taken)})
      mix(s, v);
    for (uint32_t i = 0; i < b.size; ++i) mix(s, b.bytes[i]);
    for (uint32_t i = 0; i < b.count; ++i) mix(s, b.lengths[i]);
  }
  void add(Seen& s, const Event& e) {
    ++s.events;
    for (const uint64_t v :
         {static_cast<uint64_t>(e.kind), static_cast<uint64_t>(e.time), e.ip, e.a, e.b, e.offset})
      mix(s, v);
  }
  void add(Seen& s, const Gap& g) {
    ++s.gaps;
    damage_reported = damage_reported || g.code == Code::kBadBlockStream;
    for (const uint64_t v : {g.begin, g.end, static_cast<uint64_t>(g.time.lo),
                             static_cast<uint64_t>(g.time.hi), g.ip, g.resume_ip})
      mix(s, v);
    mix(s, code_text(g.code));
    mix(s, g.reason);
  }
  Time last_start_ = kTimeMin;
};

Watch watch(const Capture& capture, const PipelineOptions& options = {}) {
  Watch w(capture.streams.size());
  EXPECT_TRUE(run_pipeline(capture, options, ChunkOrder::kByTime, w).has_value());
  return w;
}

class Record : public ChunkConsumer {
 public:
  explicit Record(const Capture& capture)
      : writer_(capture,
                [this](std::span<const uint8_t> b) { bytes.insert(bytes.end(), b.begin(), b.end()); }) {}
  void deliver(Chunk& c, const Stream&, Prepared*) override { writer_.add(c); }
  void finish() { writer_.finish(); }
  void stop() { writer_.stop(); }
  Bytes bytes;

 private:
  blocks::BlockWriter writer_;
};

Bytes write(const Capture& capture, PipelineOptions options = {}) {
  Record r(capture);
  EXPECT_TRUE(run_pipeline(capture, options, ChunkOrder::kByTime, r).has_value());
  r.finish();
  return r.bytes;
}

Result<Capture> read(const TempDir& dir, const Bytes& bytes, const std::string& name = "x.blocks") {
  write_bytes(dir.path() / name, bytes);
  return open_capture((dir.path() / name).string(), {});
}

Capture open(const std::string& path, const std::string& symfs = {}) {
  CaptureOptions options;
  options.symfs = symfs;
  auto capture = open_capture(path, options);
  if (!capture) throw std::runtime_error(capture.error().reason);
  return std::move(*capture);
}

const std::string kData = ASOF_TEST_DATA;
Capture open_demo() { return open(kData + "/demo/perf.data", kData + "/demo/symfs"); }

void expect_same_description(const Capture& a, const Capture& b) {
  EXPECT_EQ(a.machine, b.machine);
  EXPECT_EQ(a.command_line, b.command_line);
  EXPECT_EQ(a.record_counts, b.record_counts);
  EXPECT_EQ(a.notices.size(), b.notices.size());
  EXPECT_EQ(a.bpf_programs.size(), b.bpf_programs.size());
  ASSERT_EQ(a.streams.size(), b.streams.size());
  for (size_t i = 0; i < a.streams.size(); ++i) {
    EXPECT_EQ(a.streams[i].name, b.streams[i].name);
    EXPECT_EQ(a.streams[i].bounds, b.streams[i].bounds);
    EXPECT_EQ(a.streams[i].end(), b.streams[i].end());
    EXPECT_EQ(a.streams[i].losses.size(), b.streams[i].losses.size());
    EXPECT_EQ(a.streams[i].contexts.size(), b.streams[i].contexts.size());
  }
  ASSERT_EQ(a.text->pokes().size(), b.text->pokes().size());
  for (size_t i = 0; i < a.text->pokes().size(); ++i) {
    EXPECT_EQ(a.text->pokes()[i].addr, b.text->pokes()[i].addr);
    EXPECT_EQ(a.text->pokes()[i].time, b.text->pokes()[i].time);
  }
  const auto symbols = a.symbols.all(), others = b.symbols.all();
  ASSERT_EQ(symbols.size(), others.size());
  for (size_t i = 0; i < symbols.size(); ++i) {
    ASSERT_EQ(symbols[i]->name, others[i]->name);
    ASSERT_EQ(symbols[i]->dso, others[i]->dso);
    ASSERT_EQ(symbols[i]->range, others[i]->range);
    ASSERT_EQ(symbols[i]->from, others[i]->from);
    ASSERT_EQ(symbols[i]->until, others[i]->until);
  }
}

class BlockStreams : public testing::TestWithParam<std::string> {
 protected:
  // The capture, or nothing if it is not unpacked.
  static std::optional<Capture> capture() {
    const bool own = GetParam().starts_with("demo");
    const std::string path = (own ? kData : std::string(ASOF_SHARED_DIR)) + "/" + GetParam();
    if (!fs::exists(path)) return std::nullopt;
    const fs::path symfs = fs::path(path).parent_path() / "symfs";
    return open(path, fs::exists(symfs) ? symfs.string() : "");
  }
};

// Decoding was interrupted: what was written is read, and nobody takes it for all.
TEST(BlockStream, StoppedEarlyCanBeReadAndSaysSo) {
  class Part final : public ChunkConsumer {
   public:
    explicit Part(const Capture& capture) : record(capture) {}
    void deliver(Chunk& c, const Stream& s, Prepared* p) override {
      if (stopped()) return;
      for (const Step& step : c.steps) instructions += step.count;
      record.deliver(c, s, p);
      ++chunks;
    }
    bool stopped() const override { return chunks >= 1; }
    Record record;
    uint64_t instructions = 0;
    std::atomic<int> chunks = 0;
  };
  const Capture demo = open_demo();
  Part part(demo);
  PipelineOptions options;
  options.decode.chunk_steps = 256;
  ASSERT_TRUE(run_pipeline(demo, options, ChunkOrder::kByTime, part).has_value());
  ASSERT_NE(part.instructions, 0U);
  part.record.stop();
  const TempDir dir;
  const auto copy = read(dir, part.record.bytes);
  ASSERT_TRUE(copy.has_value()) << copy.error().reason;
  const Watch got = watch(*copy);
  uint64_t instructions = 0;
  for (const Seen& s : got.streams) instructions += s.instructions;
  EXPECT_EQ(instructions, part.instructions);
  EXPECT_TRUE(std::ranges::any_of(copy->notices, [](const Notice& n) {
    return n.code == Code::kBlockStreamTruncated && n.severity != Notice::Severity::kInfo;
  }));
}

TEST_P(BlockStreams, GiveBackEverything) {
  const auto original = capture();
  if (!original) GTEST_SKIP() << GetParam() << " is not unpacked";
  PipelineOptions one, four;
  one.jobs = 1;
  four.jobs = 4;
  const Bytes bytes = write(*original, one);
  EXPECT_TRUE(bytes == write(*original, four)) << "different stream with four workers";
  const TempDir dir;
  const auto copy = read(dir, bytes);
  ASSERT_TRUE(copy.has_value()) << copy.error().reason;
  expect_same_description(*original, *copy);
  const Watch want = watch(*original), got = watch(*copy), got_one = watch(*copy, one);
  EXPECT_TRUE(want.streams == got.streams);
  EXPECT_TRUE(want.streams == got_one.streams);
  EXPECT_TRUE(got.starts_ascend);
  uint64_t instructions = 0, trace = 0;
  for (const Seen& s : got.streams) instructions += s.instructions;
  for (const Stream& s : original->streams) trace += s.end() - s.begin();
  EXPECT_NE(instructions, 0U);
  RecordProperty("stream_bytes", std::to_string(bytes.size()));
  RecordProperty("trace_bytes", std::to_string(trace));
  // Written again from what was read, the flow is the same.
  const auto again = read(dir, write(*copy), "again.blocks");
  ASSERT_TRUE(again.has_value());
  EXPECT_TRUE(watch(*again).streams == want.streams);
}

INSTANTIATE_TEST_SUITE_P(
    Captures, BlockStreams,
    testing::Values("demo/perf.data", "demo-arm64/perf.data", "captures/pt-work-1round/bundle.json",
                    "captures/x86-board-small/perf.data", "captures/x86-board-storm/perf.data",
                    "captures/x86-board-userkernel/perf.data", "captures/arm64-board-tiny/poke.data",
                    "captures/arm64-board-tiny/short-nopoke.data", "captures/perf-faults/poke_window",
                    "captures/perf-faults/cs_poke"),
    [](const auto& info) {
      std::string name = info.param;
      std::ranges::replace_if(
          name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
      return name;
    });

// By CPU and by time, joined end to end and as files of one folder.
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
  for (const int version : {0, blocks::kVersion - 1, blocks::kVersion + 1}) {
    bytes[8] = static_cast<uint8_t>(version);
    const auto capture = read(dir, bytes);
    ASSERT_FALSE(capture.has_value());
    EXPECT_EQ(capture.error().code, Code::kNotBlockStream);
  }
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

// Bodies that are not a block stream but have correct checksums: no bit flip produces them.
TEST(BlockWalk, AnyBodyIsReadOrRefused) {
  SimRandom random(3);
  uint64_t read = 0;
  for (int i = 0; i < 20'000; ++i) {
    blocks::BlockMap map(1000);
    blocks::Writer code;
    code.varint(1);
    code.varint(2);
    for (int b = 0; b < 2; ++b) {
      code.u8(static_cast<uint8_t>(random.below(i % 4 == 0 ? 14 : 3)));
      code.u8(4);
      code.signed_varint(static_cast<int64_t>(random.below(100)));
      for (const uint64_t v : {0, 0, 1, 1}) code.varint(v);
      code.u8(0x90);
    }
    code.varint(3);
    for (int w = 0; w < 3; ++w) {
      code.signed_varint(w == 0 ? 1 : static_cast<int64_t>(random.below(2)));
      code.u8(static_cast<uint8_t>(random.below(2)));
      code.signed_varint(static_cast<int64_t>(random.below(3)) - 1);
    }
    map.add(code.data());
    map.finish();
    blocks::Writer body;
    body.varint(1 + random.below(20));
    for (const uint64_t v : {1, 0, 2, 0, 0, 0, 0, 9, 0x55, 1}) body.varint(v);
    Bytes changed = body.data();
    for (uint64_t n = random.below(4); n > 0; --n)
      changed[random.below(changed.size())] = static_cast<uint8_t>(random.below(n == 1 ? 256 : 8));
    Chunk chunk;
    blocks::read_walk(map, changed, {}, chunk);
    for (const Step& s : chunk.steps) read += s.count;
  }
  EXPECT_NE(read, 0U);
}

// A walk that produces nothing and never ends.
TEST(BlockWalk, EndsWhereNoStepIsAnnotated) {
  blocks::BlockMap map(1000);
  blocks::Writer code;
  for (const uint64_t v : {1, 1}) code.varint(v);
  code.u8(static_cast<uint8_t>(BranchKind::kJump));
  code.u8(4);
  code.signed_varint(64);
  for (const uint64_t v : {0, 0, 1, 1}) code.varint(v);
  code.u8(0x90);
  code.varint(1);
  code.signed_varint(1);
  code.u8(blocks::kTaken);
  code.signed_varint(0);
  ASSERT_TRUE(map.add(code.data()));
  map.finish();
  blocks::Writer body;
  body.varint(blocks::kMaxSteps);
  body.varint(1);
  body.varint(0);
  body.signed_varint(1);
  for (int i = 0; i < 5; ++i) body.varint(0);
  Chunk chunk;
  EXPECT_EQ(blocks::read_walk(map, body.data(), {}, chunk), "its chain of blocks does not end");
  EXPECT_EQ(std::ranges::distance(chunk.steps.begin(), chunk.steps.end()), blocks::kMaxQuiet);
}

}  // namespace
}  // namespace asof::test
