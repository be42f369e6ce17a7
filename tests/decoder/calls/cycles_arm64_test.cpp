// Cycle counts of CoreSight: where they stand in the flow, and which instructions are within their bounds.
#include <gtest/gtest.h>

#include <vector>

#include "decoder/calls/cycle_walk.h"
#include "tests/arch/arm64/random_simulation.h"

namespace asof::test {
namespace {

constexpr uint32_t kInLoop = 16;  // instructions for each atom
constexpr uint32_t kThreshold = 4;

// The loop's text must stay where it is: blocks point into it.
struct Counts final : ChunkSink {
  std::vector<std::pair<uint64_t, uint64_t>> counts;  // a, b
  std::vector<uint64_t> before;                       // instructions before each
  std::vector<CycleSpan> spans;
  void take(Chunk&& c) override {
    for (const Event& e : c.events) {
      if (e.kind != EventKind::kCycles) continue;
      counts.emplace_back(e.a, e.b);
      uint64_t ran = 0;
      for (auto s = c.steps.begin(); s != c.steps.end(); ++s) ran += s.position() < e.step ? s->count : 0;
      before.push_back(ran);
    }
    for (const CycleSpan& s : cycle_spans(c)) spans.push_back(s);
  }
};

Counts decode(EtmWriter& w, bool cycles, uint32_t speculation = 0) {
  std::vector<uint8_t> text;
  for (uint32_t i = 0; i + 1 < kInLoop; ++i) {
    const auto nop = a64::bytes_of(a64::kNop);
    text.insert(text.end(), nop.begin(), nop.end());
  }
  const Addr last = kMain + text.size();
  const auto back = a64::bytes_of(a64::b_cond(last, kMain, 0));
  text.insert(text.end(), back.begin(), back.end());
  Builder builder;
  builder.add_layer({.range = range_of(kMain, text.size()), .bytes = text});
  const TextStore store = std::move(builder).build();
  w.flush();
  StreamPiece piece;
  piece.bytes = w.bytes();
  Stream stream;
  stream.pieces = {piece};
  arm64::Source source = etm4_source();
  source.configr |= 1U << 4U;  // TRCCONFIGR.CCI
  source.idr8 = speculation;
  const auto arch = arm64::make_arch({.sources = {source}, .time = {}});
  DecodeOptions options;
  options.cycles = cycles;
  const auto decoder = arch->decoder({&stream, 1}, store, options);
  Counts out;
  for (const Segment& s : arch->split(stream, 0)) decoder->decode(s, out);
  return out;
}

EtmWriter counted() {
  EtmWriter w({.cycle_threshold = kThreshold});
  w.async();
  w.trace_info({.info = 1, .cycle_threshold = kThreshold});
  w.trace_on();
  w.address_with_context(kMain, {});
  w.atoms("E");
  w.cycle_count_f3(5);
  w.atoms("EE");
  w.cycle_count_f1(300);
  w.atoms("E");
  w.cycle_count_f1(std::nullopt);
  w.atoms("E");
  w.cycle_count_f2(9, 1);
  w.timestamp(1000, 3);  // its count is from the last one to the timestamp
  w.atoms("E");
  w.cycle_count_f1(4095);  // where the counter of 12 bits stands still
  w.atoms("E");
  w.cycle_count_f3(6);
  w.atoms("E");
  w.cycle_count_f3(7);
  return w;
}

TEST(CyclesArm64, StandBehindWhatHadRetired) {
  EtmWriter w = counted();
  const Counts got = decode(w, true);
  using Pairs = std::vector<std::pair<uint64_t, uint64_t>>;
  EXPECT_EQ(got.counts, (Pairs{{5, 0}, {300, 0}, {0, 1}, {9, 0}, {0, 1}, {6, 0}, {7, 0}}));
  EXPECT_EQ(got.before, (std::vector<uint64_t>{16, 48, 64, 80, 96, 112, 128}));
  EXPECT_TRUE(decode(w, false).counts.empty()) << "nobody asked for them";
}

// What is behind a count, up to the next atom, may have retired before it. Where the trace ends that is not known.
TEST(CyclesArm64, BoundsAreFromAtomToAtom) {
  EtmWriter w = counted();
  const auto spans = decode(w, true).spans;
  struct Want {
    uint64_t cycles, instructions, least, most;
  };
  const Want want[] = {{300, 32, 16, 48}, {9, 16, 0, 32}, {6, 16, 0, 32}};
  ASSERT_EQ(spans.size(), std::size(want));
  for (size_t i = 0; i < spans.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(spans[i].cycles, want[i].cycles);
    EXPECT_EQ(spans[i].instructions, want[i].instructions);
    EXPECT_EQ(spans[i].least, want[i].least);
    EXPECT_EQ(spans[i].most, want[i].most);
  }
}

TEST(CyclesArm64, OfSpeculativeUnitsAreNotUsed) {
  EtmWriter w({.max_spec_depth = 2, .cycle_threshold = kThreshold});
  w.async();
  w.trace_info({.info = 1, .cycle_threshold = kThreshold});
  w.trace_on();
  w.address_with_context(kMain, {});
  w.atoms("EE");
  w.cycle_count_f3(5);
  w.commit(2);
  w.atoms("E");
  w.cycle_count_f3(6);
  w.commit(1);
  EXPECT_TRUE(decode(w, true, 2).counts.empty());
}

}  // namespace
}  // namespace asof::test
