// run_pipeline: the same chunks in the same order for any number of workers, and a segment decoded alone
// equals the same segment decoded among the others.
#include "decoder/pipeline/pipeline.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/pt_writer.h"
#include "textstore/builder.h"

namespace asof {
namespace {

const std::string kDemo = std::string(ASOF_TEST_DATA) + "/demo/perf.data";

Capture open_demo() {
  CaptureOptions options;
  options.symfs = std::string(ASOF_TEST_DATA) + "/demo/symfs";
  auto capture = open_capture(kDemo, options);
  if (!capture) throw std::runtime_error(capture.error().reason);
  return std::move(*capture);
}

// The demo's trace many times in succession: so long that workers take several segments at a time.
struct LongDemo {
  LongDemo() : capture(open_demo()) {
    for (Stream& s : capture.streams) {
      StreamPiece& piece = s.pieces.front();
      s.pieces.resize(1);
      std::vector<uint8_t>& all = bytes.emplace_back();
      for (int i = 0; i < 40; ++i) all.insert(all.end(), piece.bytes.begin(), piece.bytes.end());
      piece.bytes = all;
      piece.mapped = false;
    }
  }
  std::list<std::vector<uint8_t>> bytes;
  Capture capture;
};

std::string show(const Chunk& c, const Stream& stream) {
  std::string s = stream.name + "/" + std::to_string(c.segment) + (c.last ? " last" : "");
  for (const Step& step : c.steps) {
    s += " " + std::to_string(step.block->ip) + "+" + std::to_string(step.count) + "@" +
         std::to_string(step.time) + "!" + std::to_string(step.flags) + "," +
         std::to_string(static_cast<int>(step.confidence));
  }
  for (const Event& e : c.events)
    s += " e" + std::to_string(static_cast<int>(e.kind)) + ":" + std::to_string(e.ip);
  for (const Gap& g : c.gaps) s += std::string(" g") + std::string(code_text(g.code)) + g.reason;
  return s;
}

// Everything a consumer can see, as one string per chunk.
class Transcript : public ChunkConsumer {
 public:
  void deliver(Chunk& c, const Stream& stream, Prepared*) override {
    for (const Step& step : c.steps) instructions += step.count;
    lines.push_back(show(c, stream));
    ++*count_;
  }
  bool stopped() const override { return *count_ >= limit; }

  std::vector<std::string> lines;
  uint64_t instructions = 0;
  size_t limit = SIZE_MAX;

 private:
  // Workers call stopped() while another one delivers.
  std::shared_ptr<std::atomic<size_t>> count_ = std::make_shared<std::atomic<size_t>>(0);
};

Transcript run(const Capture& capture, PipelineOptions options, ChunkOrder order = ChunkOrder::kByTime) {
  Transcript t;
  const auto result = run_pipeline(capture, options, order, t);
  EXPECT_TRUE(result.has_value());
  return t;
}

TEST(Pipeline, SameForAnyNumberOfWorkersAndAnyBudget) {
  const Capture capture = open_demo();
  for (const ChunkOrder order : {ChunkOrder::kByStream, ChunkOrder::kByTime}) {
    const Transcript one = run(capture, {.jobs = 1, .decode = {.chunk_steps = 50}}, order);
    ASSERT_GT(one.instructions, 1000U);
    ASSERT_GT(one.lines.size(), 10U);
    for (const unsigned jobs : {2U, 5U, 16U}) {
      for (const uint64_t memory : {uint64_t{1}, uint64_t{0}}) {
        const Transcript many =
            run(capture, {.jobs = jobs, .decode = {.chunk_steps = 50}, .max_memory = memory}, order);
        EXPECT_EQ(one.lines, many.lines) << jobs << " workers, budget " << memory;
      }
    }
  }
}

// The same by prepare(); when a chunk is delivered, only the number and times of its steps remain.
class PreparedTranscript final : public ChunkConsumer {
 public:
  std::unique_ptr<Prepared> prepare(const Chunk& c, const Stream& stream) override {
    auto line = std::make_unique<Line>();
    line->text = show(c, stream);
    line->steps = c.steps.size();
    line->loose = c.steps.loose().size();
    if (!c.steps.empty()) line->last = c.steps.time_at(c.steps.size() - 1);
    return line;
  }
  void deliver(Chunk& c, const Stream&, Prepared* prepared) override {
    const Line& line = static_cast<const Line&>(*prepared);
    EXPECT_EQ(c.steps.size(), line.steps);
    EXPECT_EQ(c.steps.loose().size(), line.loose);
    EXPECT_EQ(c.steps.empty() ? kTimeMin : c.steps.time_at(line.steps - 1), line.last);
    lines.push_back(line.text);
  }
  bool delivers_steps() const override { return false; }

  std::vector<std::string> lines;

 private:
  struct Line : Prepared {
    std::string text;
    size_t steps = 0, loose = 0;
    Time last = kTimeMin;
  };
};

TEST(Pipeline, StepsThatOnlyPrepareReads) {
  const Capture capture = open_demo();
  const Transcript t = run(capture, {.jobs = 1, .decode = {.chunk_steps = 50}});
  for (const unsigned jobs : {1U, 2U, 5U}) {
    for (const uint64_t memory : {uint64_t{1}, uint64_t{0}}) {
      PreparedTranscript p;
      ASSERT_TRUE(run_pipeline(capture, {.jobs = jobs, .decode = {.chunk_steps = 50}, .max_memory = memory},
                               ChunkOrder::kByTime, p)
                      .has_value());
      EXPECT_EQ(p.lines, t.lines) << jobs << " workers, budget " << memory;
    }
  }
}

TEST(Pipeline, ChunkSizeChangesNothingButTheCuts) {
  const Capture capture = open_demo();
  const uint64_t all = run(capture, {.jobs = 1}).instructions;
  for (const size_t steps : {size_t{1}, size_t{7}, size_t{1000}}) {
    EXPECT_EQ(run(capture, {.jobs = 1, .decode = {.chunk_steps = steps}}).instructions, all);
  }
}

TEST(Pipeline, CpuFilterLeavesTheOthersOut) {
  const Capture capture = open_demo();
  const Transcript t = run(capture, {.cpus = {1}});
  ASSERT_FALSE(t.lines.empty());
  for (const std::string& line : t.lines) EXPECT_TRUE(line.starts_with("cpu1/")) << line.substr(0, 20);
}

TEST(Pipeline, TimeFilterKeepsWholeSegmentsThatTouchIt) {
  const Capture capture = open_demo();
  auto arch = capture.arch();
  ASSERT_TRUE(arch.has_value());
  const auto segments = (*arch)->split(capture.streams[0], 0);
  ASSERT_GT(segments.size(), 4U);
  const Time in_third = segments[2].start_time + 1;
  const Transcript t = run(capture, {.cpus = {capture.streams[0].cpu}, .time = {in_third, in_third}});
  ASSERT_FALSE(t.lines.empty());
  const auto of = [&](size_t k) { return fmt::format("{}/{} ", capture.streams[0].name, segments[k].index); };
  for (const std::string& line : t.lines)
    EXPECT_TRUE(line.starts_with(of(2)) || line.starts_with(of(3))) << line;
  // Of the one behind it, nothing ran.
  const auto behind =
      std::ranges::find_if(t.lines, [&](const std::string& line) { return line.starts_with(of(3)); });
  EXPECT_TRUE(behind == t.lines.end() || std::next(behind) == t.lines.end());
}

TEST(Pipeline, SegmentsTakenTogetherAreTheSameChunks) {
  const LongDemo demo;
  for (const ChunkOrder order : {ChunkOrder::kByStream, ChunkOrder::kByTime}) {
    const Transcript one = run(demo.capture, {.jobs = 1, .decode = {.chunk_steps = 500}}, order);
    ASSERT_GT(one.instructions, 500'000U);
    for (const unsigned jobs : {2U, 3U}) {
      const Transcript many =
          run(demo.capture, {.jobs = jobs, .decode = {.chunk_steps = 500}, .max_memory = 1}, order);
      EXPECT_EQ(one.lines, many.lines) << jobs << " workers";
    }
  }
}

TEST(Pipeline, StopsWhenTheConsumerHasEnough) {
  const Capture capture = open_demo();
  Transcript t;
  t.limit = 3;
  ASSERT_TRUE(
      run_pipeline(capture, {.jobs = 4, .decode = {.chunk_steps = 50}}, ChunkOrder::kByTime, t).has_value());
  EXPECT_EQ(t.lines.size(), 3U);
}

// A branch that jumps to itself, on two CPUs. So little work in each of so many segments that many runs take no time,
// and workers take several segments at a time.
Capture many_short_segments() {
  constexpr Addr kLoop = 0xffffffff81000000;
  static constexpr std::array<uint8_t, 2> kJumpToItself{0x74, 0xfe};
  Capture capture;
  capture.machine = "x86_64";
  capture.x86.time = TimeConversion{};
  Builder text;
  text.add_layer({.range = {kLoop, kLoop + kJumpToItself.size()}, .bytes = kJumpToItself});
  capture.text.emplace(std::move(text).build());
  auto traces = std::make_shared<std::array<std::vector<uint8_t>, 2>>();
  for (uint64_t cpu = 0; cpu < traces->size(); ++cpu) {
    test::PtWriter pt;
    for (uint64_t i = 0; i < 150; ++i) {
      test::PsbPlus sync;
      sync.tsc = 1000 * i + 100 * cpu, sync.ip = kLoop;
      pt.psb_plus(sync);
      for (uint64_t n = 0; n <= i % 20; ++n) pt.tnt(true);
    }
    (*traces)[cpu] = pt.bytes();
    Stream& stream = capture.streams.emplace_back();
    stream.name = "cpu" + std::to_string(cpu);
    stream.cpu = static_cast<int>(cpu);
    stream.pieces.emplace_back().bytes = (*traces)[cpu];
  }
  capture.keep = traces;
  return capture;
}

// Where each chunk comes from, up to a number of chunks. Text of each step would take most of the time of many runs.
class Places final : public ChunkConsumer {
 public:
  explicit Places(size_t limit = SIZE_MAX) : limit_(limit) {}
  void deliver(Chunk& c, const Stream& stream, Prepared*) override {
    places.push_back({stream.name, c.segment, c.steps.size(), c.last});
    ++count_;
  }
  bool stopped() const override { return count_ >= limit_; }

  struct Place {
    std::string_view stream;
    uint64_t segment;
    size_t steps;
    bool last;
    bool operator==(const Place&) const = default;
  };
  std::vector<Place> places;

 private:
  const size_t limit_;
  std::atomic<size_t> count_{0};  // workers call stopped() while another one delivers
};

// Workers that wait to deliver are released when no more output is wanted.
void stop_everywhere(const Capture& capture, const DecodeOptions& decode) {
  Places all;
  ASSERT_TRUE(run_pipeline(capture, {.jobs = 1, .decode = decode}, ChunkOrder::kByTime, all).has_value());
  for (size_t limit = 1; limit < all.places.size(); limit += 1 + limit / 7) {
    for (const unsigned jobs : {2U, 3U, 8U}) {
      Places p(limit);
      ASSERT_TRUE(
          run_pipeline(capture, {.jobs = jobs, .decode = decode, .max_memory = 1}, ChunkOrder::kByTime, p)
              .has_value());
      ASSERT_EQ(p.places.size(), limit) << jobs << " workers";
      EXPECT_TRUE(std::equal(p.places.begin(), p.places.end(), all.places.begin())) << jobs << " workers";
    }
  }
}
TEST(Pipeline, StopsWhileOthersWait) { stop_everywhere(open_demo(), {.chunk_steps = 50}); }
// Without the block cache chunks end after exactly so many steps.
TEST(Pipeline, StopsWhileOthersWaitWithMoreSegments) {
  stop_everywhere(many_short_segments(), {.chunk_steps = 4, .block_cache = false});
}

class Collect : public ChunkSink {
 public:
  void take(Chunk&& c) override {
    for (const Step& s : c.steps) steps.emplace_back(s.block->ip, s.count);
  }
  std::vector<std::pair<Addr, uint32_t>> steps;
};

TEST(Pipeline, SegmentDecodedAloneIsTheSegmentAmongOthers) {
  const Capture capture = open_demo();
  auto arch = capture.arch();
  ASSERT_TRUE(arch.has_value());
  for (size_t i = 0; i < capture.streams.size(); ++i) {
    const auto segments = (*arch)->split(capture.streams[i], i);
    auto shared = (*arch)->decoder(capture.streams, *capture.text, {});
    Collect in_order, alone;
    for (const Segment& s : segments) shared->decode(s, in_order);
    for (const Segment& s : segments) (*arch)->decoder(capture.streams, *capture.text, {})->decode(s, alone);
    EXPECT_EQ(in_order.steps, alone.steps);
    ASSERT_FALSE(alone.steps.empty());
  }
}

TEST(Pipeline, ProgressEndsAtTheTotal) {
  const Capture capture = open_demo();
  Transcript t;
  PipelineProgress last;
  ASSERT_TRUE(run_pipeline(capture, {.jobs = 3}, ChunkOrder::kByTime, t, [&](const PipelineProgress& p) {
                last.total_bytes = p.total_bytes;
                last.done_bytes = std::max(last.done_bytes, p.done_bytes);
              }).has_value());
  EXPECT_EQ(last.done_bytes, last.total_bytes);
  EXPECT_GT(last.total_bytes, 0U);
}

}  // namespace
}  // namespace asof
