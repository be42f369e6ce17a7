// Block streams: what is read back equals what was written, step by step, event by event and gap by gap, for
// every available capture.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>

#include "decoder/blocks/block_capture.h"
#include "decoder/blocks/block_file.h"
#include "decoder/blocks/block_writer.h"
#include "decoder/blocks/changing_text.h"
#include "decoder/pipeline/pipeline.h"
#include "tests/decoder/blocks/block_copy.h"
#include "tests/support/sim_random.h"
#include "tests/support/temp_dir.h"
#include "textstore/builder.h"
#include "textstore/text_image.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

// Kernel text that changes, and what else the store says of it.
void expect_same_changes(const TextStore& a, const TextStore& b) {
  const auto changing = [](const TextStore& text) {
    std::vector<Cell> cells = text.cells(kKernelSpace, {Addr{1} << 63U, UINT64_MAX});
    std::erase_if(cells, [](const Cell& c) { return c.versions.empty() || c.stable(); });
    return cells;
  };
  const std::vector<Cell> cells = changing(a), others = changing(b);
  ASSERT_EQ(cells.size(), others.size());
  for (size_t i = 0; i < cells.size(); ++i) {
    ASSERT_EQ(cells[i].range, others[i].range);
    ASSERT_EQ(cells[i].versions.size(), others[i].versions.size());
    for (size_t k = 0; k < cells[i].versions.size(); ++k) {
      const Version &v = cells[i].versions[k], &w = others[i].versions[k];
      EXPECT_TRUE(v.from == w.from && v.until == w.until && v.origin == w.origin && v.unsure == w.unsure);
      EXPECT_TRUE(same_bytes(&v, &w, cells[i].range.size()));
    }
  }
  EXPECT_EQ(a.unsure_from(), b.unsure_from());
  EXPECT_EQ(a.losses().size(), b.losses().size());
}

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
    ASSERT_EQ(a.streams[i].contexts.size(), b.streams[i].contexts.size());
    for (size_t k = 0; k < a.streams[i].contexts.size(); ++k) {
      EXPECT_EQ(a.streams[i].contexts[k].tid, b.streams[i].contexts[k].tid);
      EXPECT_EQ(a.streams[i].contexts[k].space, b.streams[i].contexts[k].space);
      EXPECT_EQ(a.streams[i].contexts[k].preempts, b.streams[i].contexts[k].preempts);
    }
  }
  ASSERT_EQ(a.text->pokes().size(), b.text->pokes().size());
  for (size_t i = 0; i < a.text->pokes().size(); ++i) {
    EXPECT_EQ(a.text->pokes()[i].addr, b.text->pokes()[i].addr);
    EXPECT_EQ(a.text->pokes()[i].time, b.text->pokes()[i].time);
  }
  expect_same_changes(*a.text, *b.text);
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

// Two versions of one origin, of which it is open which ran, differ in nothing but their bytes. The second was given as the
// first.
TEST(BlockStream, VersionsWithOtherBytesAreOtherBlocks) {
  const Capture demo = open_demo();
  const Addr ip = demo.text->cells(kKernelSpace, {Addr{1} << 63U, UINT64_MAX})[1].range.begin;
  const Bytes bytes[] = {{0x90, 0x66, 0x90}, {0x66, 0x90, 0x90}}, lengths[] = {{1, 2}, {2, 1}};
  Block blocks[2];
  Chunk chunk;
  chunk.last = true;
  for (size_t i = 0; i < 2; ++i) {
    blocks[i] = {
        .ip = ip, .size = 3, .count = 2, .origin = 1, .bytes = bytes[i].data(), .lengths = lengths[i].data()};
    Step step;
    step.block = &blocks[i];
    step.count = 2;
    step.confidence = Confidence::kAmbiguous;
    chunk.steps.push_back(step);
  }
  Record record(demo);
  record.deliver(chunk, demo.streams[0], nullptr);
  record.finish();
  const TempDir dir;
  const auto copy = read(dir, record.bytes);
  ASSERT_TRUE(copy.has_value()) << copy.error().reason;
  struct Read final : ChunkConsumer {
    void deliver(Chunk& c, const Stream&, Prepared*) override {
      for (const Step& s : c.steps) texts.emplace_back(s.block->bytes, s.block->bytes + s.block->size);
    }
    std::vector<Bytes> texts;
  } reader;
  ASSERT_TRUE(run_pipeline(*copy, {}, ChunkOrder::kByTime, reader));
  EXPECT_EQ(reader.texts, (std::vector<Bytes>{bytes[0], bytes[1]}));
}

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

// Two changes that would be one, had no records been lost between them. Origins are numbers of changes: none may go.
class PokesAroundALoss : public testing::Test {
 protected:
  static constexpr Addr kSite = 0xffffffff81000040;
  PokesAroundALoss() {
    Builder builder;
    const OriginRef kcore = builder.add_origin({OriginKind::kKcore, "kcore", 0, {}});
    builder.add_layer({.range = range_of(kSite - 0x40, text_.size()), .bytes = text_, .origin = kcore});
    for (const Time t : {1000, 3000})
      builder.add_poke(
          {.addr = kSite, .time = t, .old_bytes = breakpoint_, .new_bytes = nop_, .file_offset = 8});
    builder.add_poke(
        {.addr = kSite, .time = 90'000, .old_bytes = nop_, .new_bytes = breakpoint_, .file_offset = 9});
    builder.add_lost({.source = 0, .after = 1500, .until = 2500, .count = 3});
    capture_.text = std::move(builder).build();
  }
  const Bytes text_ = Bytes(0x80, 0x90), breakpoint_ = {0xcc}, nop_ = {0x90};
  Capture capture_;
};

TEST_F(PokesAroundALoss, AreBothThere) {
  ASSERT_EQ(capture_.text->pokes().size(), 3U);
  Capture copy;
  ASSERT_TRUE(blocks::take_capture(blocks::put_capture(capture_), copy));
  ASSERT_EQ(copy.text->pokes().size(), 3U);
  EXPECT_EQ(copy.text->pokes()[1].time, 3000);
  expect_same_changes(*capture_.text, *copy.text);
  EXPECT_NE(copy.text->unsure_from(), kTimeMax);
}

// Of versions before 8: nothing is said of what cannot be told.
TEST_F(PokesAroundALoss, AreBothThereInAnOlderStream) {
  Bytes body = blocks::put_capture(capture_);
  blocks::Writer text;
  blocks::put_changing_text(text, *capture_.text, [](OriginRef origin) { return origin; });
  body.resize(body.size() - text.size());
  Capture copy;
  ASSERT_TRUE(blocks::take_capture(body, copy));
  EXPECT_EQ(copy.text->pokes().size(), 3U);
  EXPECT_TRUE(copy.text->cell(kKernelSpace, kSite).versions.empty());
}

// The first change of the demo's text says otherwise when it was made, or how long it was.
class BlockCapture : public testing::Test {
 protected:
  // What replaces the numbers of the first change: the bytes that follow them in the body stay.
  bool taken_with(Time time, uint64_t old_len, size_t more_bytes) const {
    Bytes body = blocks::put_capture(demo_);
    const Bytes was = numbers(poke_.time, poke_.old_len), now = numbers(time, old_len);
    const auto at = std::ranges::search(body, was).begin();
    EXPECT_NE(at, body.end());
    Bytes changed(body.begin(), at);
    changed.insert(changed.end(), now.begin(), now.end());
    changed.insert(changed.end(), more_bytes, uint8_t{0x90});
    changed.insert(changed.end(), at + static_cast<ptrdiff_t>(was.size()), body.end());
    Capture copy;
    return blocks::take_capture(changed, copy) && copy.text->pokes().size() == demo_.text->pokes().size();
  }
  Bytes numbers(Time time, uint64_t old_len) const {
    blocks::Writer w;
    w.varint(poke_.addr);
    w.signed_varint(time);
    for (const uint64_t v : {poke_.file_offset, uint64_t{poke_.source}, old_len, uint64_t{poke_.new_len}})
      w.varint(v);
    return w.data();
  }

  const Capture demo_ = open_demo();
  const PokeRecord& poke_ = demo_.text->pokes().front();
};

TEST_F(BlockCapture, AChangeWithoutATimeIsDamage) {
  EXPECT_TRUE(taken_with(poke_.time, poke_.old_len, 0));
  EXPECT_TRUE(taken_with(kTimeMin + 1, poke_.old_len, 0));
  EXPECT_FALSE(taken_with(kTimeMin, poke_.old_len, 0));
}

// It was left out without a word.
TEST_F(BlockCapture, AChangeLongerThanRecordsCanSayIsDamage) {
  EXPECT_TRUE(taken_with(poke_.time, UINT16_MAX, UINT16_MAX - poke_.old_len));
  EXPECT_FALSE(taken_with(poke_.time, UINT16_MAX + 1, UINT16_MAX + 1 - poke_.old_len));
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
