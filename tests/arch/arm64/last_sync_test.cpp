// What a decoder remembers of the previous segments is what a search of the trace finds.
#include "arch/arm64/last_sync.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/etm_opencsd.h"
#include "tests/support/etm_writer.h"
#include "tests/support/sim_random.h"

namespace asof::arm64 {
namespace {

using namespace asof::test;

struct Trace {
  std::vector<uint8_t> bytes;
  std::vector<LastSync::Walked> segments;
  Stream stream;
};

// `rare`: segments without an event are the rule, so that searches go far back.
Trace random_trace(SimRandom& random, bool has_clock, bool rare) {
  Trace t;
  EtmWriter w;
  uint64_t time = random.below(1'000'000);
  const auto at = [&w] {
    w.flush();
    return w.bytes().size();
  };
  for (uint64_t n = random.between(20, 200); n > 0; --n) {
    LastSync::Walked s;
    s.begin = at();
    s.has_clock = has_clock;
    w.async();
    w.trace_info({});
    w.address_with_context(0xffff800010000000, {});
    Time passed = kTimeMin;
    const bool has_event = random.chance(rare ? 3 : 60);
    for (uint64_t i = random.below(rare ? 2'000 : 40); i > 0; --i) {
      if (random.chance(30)) {
        // Time that decreases is damage, which must not make a difference either.
        time = random.chance(2) ? random.below(1'000'000) : time + random.below(1'000);
        w.timestamp(time);
        if (has_clock && time != 0) passed = std::max(passed, static_cast<Time>(time));
      }
      if (has_event && random.chance(10)) {
        random.chance(70) ? w.exception(10, 0xffff800010000000 + 4 * random.below(1'000))
                          : w.exception_return();
        s.passed = passed;
      }
      w.atom(random.chance(70));
      if (random.chance(1)) at(), w.async();  // nothing starts after it
    }
    s.end = at();
    t.segments.push_back(s);
  }
  t.bytes.assign(w.bytes().begin(), w.bytes().end());
  for (LastSync::Walked& s : t.segments) s.bytes = std::span(t.bytes).subspan(s.begin, s.end - s.begin);
  // Pieces with their times, some after a hole.
  for (size_t from = 0; from < t.segments.size();) {
    const size_t to = std::min<size_t>(t.segments.size(), from + random.between(1, 30));
    StreamPiece p;
    p.offset = t.segments[from].begin;
    p.bytes = std::span(t.bytes).subspan(p.offset, t.segments[to - 1].end - p.offset);
    p.discontinuity = random.chance(30);
    if (random.chance(50)) p.time.lo = static_cast<Time>(random.below(2'000'000));
    t.stream.pieces.push_back(p);
    from = to;
  }
  return t;
}

TEST(LastSync, IsTheSameWhenTheSegmentBeforeWasWalked) {
  const PacketFormat format = PacketFormat::of(etm4_source());
  uint64_t found = 0, none = 0;
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    SCOPED_TRACE(seed);
    SimRandom random(seed);
    const bool has_clock = random.chance(70);
    const Trace t = random_trace(random, has_clock, seed % 3 == 0);
    const std::optional<TimeConversion> clock = has_clock ? std::optional(TimeConversion{}) : std::nullopt;
    LastSync memory;
    for (const LastSync::Walked& s : t.segments) {
      if (random.chance(70)) {
        const Time want = LastSync().before(t.stream, s.begin, format, clock);
        ASSERT_EQ(memory.before(t.stream, s.begin, format, clock), want) << s.begin;
        ++(want == kTimeMin ? none : found);
      }
      if (random.chance(95)) memory.walked(t.stream, s);
    }
  }
  EXPECT_GT(found, 2'000U);
  EXPECT_GT(none, 400U);
}

// The search gives up after a certain amount of trace; what is remembered ends at the same point.
TEST(LastSync, ReachesAsFarBackAsASearch) {
  const PacketFormat format = PacketFormat::of(etm4_source());
  const std::optional<TimeConversion> clock = TimeConversion{};
  EtmWriter w;
  std::vector<LastSync::Walked> segments;
  for (int n = 0; n < 60; ++n) {
    w.flush();
    LastSync::Walked s;
    s.begin = w.bytes().size();
    s.has_clock = true;
    w.async();
    w.trace_info({});
    w.address_with_context(0xffff800010000000, {});
    w.timestamp(1'000 + static_cast<uint64_t>(n));
    if (n == 0) {
      w.exception(10, 0xffff800010000000);
      s.passed = 1'000;
    }
    for (int i = 0; i < 60'000; ++i) w.timestamp(2'000 + static_cast<uint64_t>(n));
    w.flush();
    s.end = w.bytes().size();
    segments.push_back(s);
  }
  const std::vector<uint8_t> bytes(w.bytes().begin(), w.bytes().end());
  Stream stream;
  StreamPiece piece;
  piece.bytes = bytes;
  stream.pieces = {piece};
  LastSync memory;
  size_t known = 0;
  for (LastSync::Walked& s : segments) {
    s.bytes = std::span(bytes).subspan(s.begin, s.end - s.begin);
    const Time want = LastSync().before(stream, s.begin, format, clock);
    EXPECT_EQ(memory.before(stream, s.begin, format, clock), want) << s.begin;
    known += want != kTimeMin ? 1 : 0;
    memory.walked(stream, s);
  }
  EXPECT_GT(known, 2U);
  EXPECT_LT(known, segments.size() - 2);
}

}  // namespace
}  // namespace asof::arm64
