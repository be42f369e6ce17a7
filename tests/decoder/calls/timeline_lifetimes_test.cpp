// What a timeline shows of text that was loaded and unloaded: modules and copies of memory, by what the
// capture knows of each, and how a time window cuts them.
#include <gtest/gtest.h>

#include "decoder/calls/timeline.h"
#include "decoder/calls/timeline_window.h"
#include "tests/decoder/capture_test_util.h"

namespace asof {
namespace {

using namespace test;

class Collected final : public TimelineSink {
 public:
  void lifetime(const LifetimeSlice& l) override { lifetimes.push_back(l); }
  void slice(const Slice& s) override { slices.push_back(s); }
  void gap(const GapSlice& g) override { gaps.push_back(g); }
  void block(const BlockSlice& b) override { blocks.push_back(b); }
  void counter(const CounterPoint& p) override { counters.push_back(p); }
  void poke(const PokeSlice& p) override { pokes.push_back(p); }

  std::vector<LifetimeSlice> of(LifetimeSlice::Kind kind) const {
    std::vector<LifetimeSlice> out;
    for (const LifetimeSlice& l : lifetimes) {
      if (l.kind == kind) out.push_back(l);
    }
    return out;
  }
  const LifetimeSlice* module(const std::string& name) const {
    for (const LifetimeSlice& l : lifetimes) {
      if (l.kind == LifetimeSlice::Kind::kModule && l.name == name) return &l;
    }
    return nullptr;
  }

  std::vector<LifetimeSlice> lifetimes;
  std::vector<Slice> slices;
  std::vector<GapSlice> gaps;
  std::vector<BlockSlice> blocks;
  std::vector<CounterPoint> counters;
  std::vector<PokeSlice> pokes;
};

class Lifetimes : public ::testing::Test {
 protected:
  static constexpr Addr kModules = Recording::kModules;

  void module(Recording& recording, const std::string& name, Addr at) {
    recording.modules += Recording::module_line(name, at, 0x1000);
    recording.symbol(at, 't', name + "_init", name);
  }
  void run(const PipelineOptions& pipeline = {}) {
    r.writer.itrace_start(1, 1, Recording::at(10));
    auto opened = r.open();
    ASSERT_TRUE(opened.has_value()) << opened.error().reason;
    capture.emplace(std::move(*opened));
    TimelineOptions options;
    options.pipeline = pipeline;
    ASSERT_TRUE(run_timeline(*capture, options, got).has_value());
  }
  Recording r;
  std::optional<Capture> capture;
  Collected got;
};

TEST_F(Lifetimes, ModulesOfBothCopies) {
  module(r, "stays", kModules);
  module(r, "goes", kModules + 0x2000);
  r.segment(kModules, Bytes(0x6000, 0xa1));
  const std::string comes = r.kallsyms + Recording::line(kModules + 0x4000, 't', "comes_init", "comes");
  r.write_end({{Recording::kText, r.kernel_bytes}, {kModules, Bytes(0x6000, 0xa1)}}, comes,
              Recording::module_line("stays", kModules, 0x1000) +
                  Recording::module_line("comes", kModules + 0x4000, 0x1000));
  run();
  const Time end = 1'000'001;  // after the last record
  const LifetimeSlice* stays = got.module("[stays]");
  ASSERT_NE(stays, nullptr);
  EXPECT_EQ(stays->range.begin, kModules);
  EXPECT_EQ(stays->begin, kTimeMin);
  EXPECT_EQ(stays->end, kTimeMax);
  EXPECT_EQ(stays->seen, (TimeBounds{kTimeMin, kTimeMax}));
  const LifetimeSlice* goes = got.module("[goes]");
  ASSERT_NE(goes, nullptr);
  EXPECT_EQ(goes->begin, kTimeMin);
  EXPECT_EQ(goes->end, end) << "it was unloaded by then";
  EXPECT_EQ(goes->seen, (TimeBounds{kTimeMin, 10})) << "it was loaded when the trace began";
  const LifetimeSlice* comes_lifetime = got.module("[comes]");
  ASSERT_NE(comes_lifetime, nullptr);
  EXPECT_EQ(comes_lifetime->begin, 10) << "it was not loaded yet";
  EXPECT_EQ(comes_lifetime->end, kTimeMax);
  EXPECT_EQ(comes_lifetime->seen, (TimeBounds{end, kTimeMax}));
  EXPECT_EQ(got.of(LifetimeSlice::Kind::kModule).size(), 3U);

  const auto copies = got.of(LifetimeSlice::Kind::kSnapshot);
  ASSERT_EQ(copies.size(), 2U);
  EXPECT_EQ(copies[0].name, "kcore");
  EXPECT_EQ(copies[0].end, 10);
  EXPECT_EQ(copies[1].name, "kcore at the end");
  EXPECT_EQ(copies[1].begin, end);
}

TEST_F(Lifetimes, WatchedModuleReplacesAnother) {
  module(r, "before", kModules);
  r.segment(kModules, Bytes(0x2000, 0xa1));
  ByteSink file;
  file.u64(400), file.u64(kModules), file.u32(64), file.u32(100), file.raw(Bytes(64, 0xb2));
  write_bytes(r.dir / "ksym_text.bin", file.bytes());
  run();
  const LifetimeSlice* before = got.module("[before]");
  ASSERT_NE(before, nullptr);
  EXPECT_EQ(before->end, 399);
  const auto modules = got.of(LifetimeSlice::Kind::kModule);
  ASSERT_EQ(modules.size(), 2U);
  EXPECT_EQ(modules[1].begin, 10);  // since the copy of the start was made
  EXPECT_EQ(modules[1].seen, (TimeBounds{400, 400}));
  const auto copies = got.of(LifetimeSlice::Kind::kSnapshot);
  ASSERT_EQ(copies.size(), 2U);
  EXPECT_EQ(copies[1].begin, 400);
  EXPECT_EQ(copies[1].end, 400);
}

TEST_F(Lifetimes, ModulesByTheRecordingAlone) {
  r.with_kcore = false;
  MmapSpec map{
      .addr = kModules, .len = 0x2000, .filename = "/lib/modules/6.1/kernel/a-b.ko.xz", .kernel = true};
  r.writer.mmap(map);
  run();
  ASSERT_EQ(got.of(LifetimeSlice::Kind::kModule).size(), 1U);
  EXPECT_NE(got.module("[a_b]"), nullptr);
  EXPECT_TRUE(got.of(LifetimeSlice::Kind::kSnapshot).empty());
}

// Pokes outside the window are not shown, but the number of pokes before it is known.
TEST_F(Lifetimes, WindowKnowsWhatWasBefore) {
  for (const uint64_t t : {100, 200, 300})
    r.writer.text_poke(Recording::kText + t, Bytes{0x90}, Bytes{0xcc}, Recording::at(t));
  PipelineOptions pipeline;
  pipeline.time = {150, 250};
  run(pipeline);
  ASSERT_EQ(got.pokes.size(), 1U);
  EXPECT_EQ(got.pokes[0].time, 200);
  std::erase_if(got.counters,
                [](const CounterPoint& p) { return p.kind != CounterPoint::Kind::kTextVersion; });
  ASSERT_EQ(got.counters.size(), 2U);
  EXPECT_EQ(got.counters[0].time, 150);
  EXPECT_EQ(got.counters[0].value, 1);
  EXPECT_EQ(got.counters[1].time, 200);
  EXPECT_EQ(got.counters[1].value, 2);
}

TEST(Window, CutsAndSaysSo) {
  Collected got;
  WindowSink window(got, 1, {100, 200}, {});
  const auto add = [&](Time begin, Time end) {
    Slice s;
    s.begin = begin, s.end = end;
    window.slice(s);
  };
  add(0, 99), add(201, 300), add(100, 200), add(50, 150), add(150, 250), add(0, 300), add(0, 100),
      add(200, 300);
  ASSERT_EQ(got.slices.size(), 6U);
  constexpr uint32_t kBegin = Slice::kClippedBegin, kEnd = Slice::kClippedEnd;
  const std::tuple<Time, Time, uint32_t> want[] = {{100, 200, 0},      {100, 150, kBegin},
                                                   {150, 200, kEnd},   {100, 200, kBegin | kEnd},
                                                   {100, 100, kBegin}, {200, 200, kEnd}};
  for (size_t i = 0; i < 6; ++i)
    EXPECT_EQ(std::tuple(got.slices[i].begin, got.slices[i].end, got.slices[i].flags), want[i]) << i;
  EXPECT_EQ(window.slices(), 6U);
  GapSlice gap;
  gap.begin = 90, gap.end = 110;
  window.gap(gap);
  ASSERT_EQ(got.gaps.size(), 1U);
  EXPECT_EQ(got.gaps[0].begin, 100);
  EXPECT_EQ(got.gaps[0].flags, kBegin);
  EXPECT_EQ(slice_flag_names(kBegin | kEnd), "clipped-begin clipped-end");
}

// Runs are kept until their trace gives a later time; the last ones end with the trace, or have no end.
TEST(Blocks, AreKeptUntilTimeGoesOn) {
  Collected got;
  BlockHolder holder(2, got);
  const auto add = [&](size_t stream, Time begin, Time end) {
    BlockSlice b;
    b.stream = stream;
    b.begin = begin, b.end = end;
    b.piece.lengths = {1, 2, 3};
    b.piece.taken = true;
    holder.add(b);
  };
  add(0, 100, 100);
  add(0, 100, 100);
  add(1, 50, 50);
  EXPECT_TRUE(got.blocks.empty());
  holder.led_to(0, 0x1234);
  add(0, 100, 130);
  ASSERT_EQ(got.blocks.size(), 3U);
  for (const BlockSlice& b : got.blocks) EXPECT_EQ(b.end, 130);
  EXPECT_EQ(got.blocks[2].piece.to, 0x1234U);
  EXPECT_EQ(got.blocks[1].piece.to, 0U);
  EXPECT_EQ(got.blocks[2].id, 3U);
  EXPECT_EQ(got.blocks[2].instructions, 6U);
  add(0, 140, 140);
  add(0, 150, 150);
  ASSERT_EQ(got.blocks.size(), 4U);
  EXPECT_EQ(got.blocks[3].end, 150);
  holder.finish(0, 170);
  holder.finish(1, kTimeMax);
  ASSERT_EQ(got.blocks.size(), 6U);
  EXPECT_EQ(got.blocks[4].end, 170);
  EXPECT_EQ(got.blocks[5].end, kTimeMax) << "unknown";
  // Time advances while a run is not over, and when nothing runs.
  got.blocks.clear();
  holder.begun(0, 200);
  holder.time(0, 210);
  holder.time(0, 220);
  add(0, 200, 220);
  ASSERT_EQ(got.blocks.size(), 1U);
  EXPECT_EQ(got.blocks[0].end, 210);
  holder.begun(0, 220);
  add(0, 220, 220);
  holder.time(0, 230);
  ASSERT_EQ(got.blocks.size(), 2U);
  EXPECT_EQ(got.blocks[1].end, 230);
  // Memory is bounded for any trace.
  for (int i = 0; i < 200'000; ++i) add(1, 60, 60);
  EXPECT_GT(got.blocks.size(), 100'000U);
}

}  // namespace
}  // namespace asof
