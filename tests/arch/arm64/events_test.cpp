// What a trace reports besides the flow: changes of context, outputs of the trace unit's events.
#include <gtest/gtest.h>

#include "tests/arch/arm64/random_simulation.h"

namespace asof::test {
namespace {

struct Events final : ChunkSink {
  std::vector<Event> all;
  void take(Chunk&& c) override {
    for (const Event& e : c.events) {
      if (e.kind == EventKind::kContext || e.kind == EventKind::kTraceEvent) all.push_back(e);
    }
  }
};

TEST(ArmEvents, ContextsAndEvents) {
  std::vector<uint8_t> text;
  for (int i = 0; i < 15; ++i) {
    const auto nop = a64::bytes_of(a64::kNop);
    text.insert(text.end(), nop.begin(), nop.end());
  }
  const auto back = a64::bytes_of(a64::b(kMain + 0x3c, kMain));
  text.insert(text.end(), back.begin(), back.end());
  EtmWriter w;
  w.async();
  w.trace_info({});
  w.trace_on();
  w.address_with_context(kMain, {.context_id = 7});
  w.atoms("E");
  w.event(5);
  w.atoms("E");
  w.context({.context_id = 7});  // nothing new
  w.context({.context_id = 9});
  w.atoms("E");
  w.context({.el = 2, .non_secure = false, .context_id = 9});
  w.atoms("E");
  w.flush();
  Builder builder;
  builder.add_layer({.range = range_of(kMain, text.size()), .bytes = text});
  const TextStore store = std::move(builder).build();
  StreamPiece piece;
  piece.bytes = w.bytes();
  Stream stream;
  stream.pieces = {piece};
  const auto arch = arm64::make_arch({.sources = {etm4_source()}, .time = {}});
  const auto decoder = arch->decoder({&stream, 1}, store, {});
  Events events;
  for (const Segment& s : arch->split(stream, 0)) decoder->decode(s, events);
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

}  // namespace
}  // namespace asof::test
