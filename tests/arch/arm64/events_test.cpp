// What a trace reports besides the flow: changes of context, outputs of the trace unit's events.
#include <gtest/gtest.h>

#include "tests/arch/arm64/random_simulation.h"

namespace asof::test {
namespace {

struct Events final : ChunkSink {
  std::vector<Event> all;
  std::vector<Gap> gaps;
  uint64_t instructions = 0;
  void take(Chunk&& c) override {
    for (const Event& e : c.events) {
      if (e.kind == EventKind::kContext || e.kind == EventKind::kTraceEvent) all.push_back(e);
    }
    gaps.insert(gaps.end(), c.gaps.begin(), c.gaps.end());
    for (auto step = c.steps.begin(); step != c.steps.end(); ++step) instructions += step->count;
  }
};

EtmWriter started() {
  EtmWriter w;
  w.async();
  w.trace_info({});
  w.trace_on();
  return w;
}

// Of a trace over a loop of 16 instructions at kMain; nothing is known of what is elsewhere.
Events decoded(EtmWriter& w, const DecodeOptions& options = {}) {
  std::vector<uint8_t> text;
  for (int i = 0; i < 15; ++i) {
    const auto nop = a64::bytes_of(a64::kNop);
    text.insert(text.end(), nop.begin(), nop.end());
  }
  const auto back = a64::bytes_of(a64::b(kMain + 0x3c, kMain));
  text.insert(text.end(), back.begin(), back.end());
  w.flush();
  Builder builder;
  builder.add_layer({.range = range_of(kMain, text.size()), .bytes = text});
  const TextStore store = std::move(builder).build();
  StreamPiece piece;
  piece.bytes = w.bytes();
  Stream stream;
  stream.pieces = {piece};
  const auto arch = arm64::make_arch({.sources = {etm4_source()}, .time = {}});
  const auto decoder = arch->decoder({&stream, 1}, store, options);
  Events events;
  for (const Segment& s : arch->split(stream, 0)) decoder->decode(s, events);
  return events;
}

TEST(ArmEvents, ContextsAndEvents) {
  EtmWriter w = started();
  w.address_with_context(kMain, {.context_id = 7});
  w.atoms("E");
  w.event(5);
  w.atoms("E");
  w.context({.context_id = 7});  // nothing new
  w.context({.context_id = 9});
  w.atoms("E");
  w.context({.el = 2, .non_secure = false, .context_id = 9});
  w.atoms("E");
  const Events events = decoded(w);
  ASSERT_EQ(events.all.size(), 4U);
  EXPECT_EQ(events.all[0].kind, EventKind::kContext);
  EXPECT_EQ(events.all[0].a, 7U);
  EXPECT_EQ(events.all[0].b, 1U | 4U | 8U);
  EXPECT_EQ(events.all[1].kind, EventKind::kTraceEvent);
  EXPECT_EQ(events.all[1].a, 5U);
  EXPECT_EQ(events.all[2].a, 9U);
  EXPECT_EQ(events.all[2].b, events.all[0].b);
  EXPECT_EQ(events.all[3].a, 9U);
  EXPECT_EQ(events.all[3].b, 2U | 8U);
}

// A context changes the execution state after the flow was lost at an address: it says nothing of where the flow is.
TEST(ArmEvents, ContextWhereTheFlowIsLost) {
  for (const bool cache : {true, false}) {
    EtmWriter w = started();
    w.address_with_context(kMain + 0x1000, {});  // nothing is there
    w.atoms("E");
    w.context({.el = 0, .aarch64 = false});
    w.event(5);
    w.atoms("E");
    w.address_with_context(kMain, {});
    w.atoms("EE");
    const Events events = decoded(w, {.block_cache = cache});
    ASSERT_EQ(events.gaps.size(), 1U);
    EXPECT_EQ(events.gaps[0].code, Code::kNoBytes);
    EXPECT_EQ(events.gaps[0].resume_ip, kMain);
    EXPECT_EQ(events.instructions, 32U);
    ASSERT_EQ(events.all.size(), 4U);
    EXPECT_EQ(events.all[1].ip, 0U);
    EXPECT_EQ(events.all[2].ip, 0U);
  }
}

// Nor after tracing went off at it, nor between an exception there and its vector.
TEST(ArmEvents, ContextWhereTheFlowIsNot) {
  EtmWriter w = started();
  w.address_with_context(kMain, {});
  w.trace_on();
  w.context({.el = 0, .aarch64 = false});
  w.atoms("E");
  const Events off = decoded(w);
  EXPECT_EQ(off.instructions, 0U);
  ASSERT_EQ(off.gaps.size(), 1U);
  EXPECT_EQ(off.gaps[0].code, Code::kPacketOutOfPlace);

  w = started();
  w.address_with_context(kMain, {});
  w.exception(etm_exception::kIrq, kMain);
  w.context({.el = 2, .aarch64 = false});
  w.event(5);
  w.address_with_context(kMain, {});
  w.atoms("E");
  const Events exception = decoded(w);
  EXPECT_EQ(exception.instructions, 16U);
  EXPECT_TRUE(exception.gaps.empty());
  ASSERT_EQ(exception.all.size(), 4U);
  EXPECT_EQ(exception.all[2].kind, EventKind::kTraceEvent);
  EXPECT_EQ(exception.all[2].ip, 0U);
}

}  // namespace
}  // namespace asof::test
