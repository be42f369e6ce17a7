// Damaged traces, and segments in any order: decoding terminates, accounts for every byte, and depends only
// on the segment.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "arch/arm64/packet.h"
#include "tests/arch/arm64/random_simulation.h"

namespace asof::test {
namespace {

using arm64::Pk;

std::vector<Addr> addresses(const EtmDecoded& d) {
  std::vector<Addr> out;
  for (const EtmRan& r : d.ran) out.push_back(r.ip);
  return out;
}

TEST(EtmFlow, SegmentsInAnyOrder) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    EtmSettings settings;
    settings.seed = seed;
    settings.ns = 20'000;
    settings.changes = static_cast<unsigned>(seed % 4);
    const EtmSimulation sim(settings);
    const std::vector<Segment> segments = sim.segments(0);
    ASSERT_GT(segments.size(), 1U);
    std::vector<std::vector<Addr>> forward;
    const auto one = sim.decoder();
    for (const Segment& s : segments) {
      EtmDecoded d;
      one->decode(s, d);
      forward.push_back(addresses(d));
    }
    const auto other = sim.decoder();
    for (size_t i = segments.size(); i-- > 0;) {
      EtmDecoded warm, cold;
      other->decode(segments[i], warm);
      sim.decoder()->decode(segments[i], cold);
      EXPECT_EQ(addresses(warm), forward[i]) << "seed " << seed << " segment " << i;
      EXPECT_EQ(addresses(cold), forward[i]) << "seed " << seed << " segment " << i;
    }
  }
}

// Segments follow each other without a hole, and the bytes before the first are in a gap.
void check_cover(const Stream& stream, const std::vector<Segment>& segments) {
  ASSERT_FALSE(segments.empty());
  uint64_t at = stream.begin();
  for (const Segment& s : segments) {
    if (s.begin != at) {
      ASSERT_TRUE(s.before);
      ASSERT_LE(s.before->begin, at);
      ASSERT_GE(s.before->end, s.begin);
    }
    ASSERT_LE(s.begin, s.end);
    ASSERT_LE(s.end, s.tail_end);
    ASSERT_LE(s.tail_end, stream.end());
    at = s.end;
  }
  ASSERT_EQ(at, stream.end());
}

// Offset of the first bytes of a segment that are not a packet, or SIZE_MAX.
size_t first_bad(std::span<const uint8_t> bytes, const arm64::PacketFormat& format) {
  for (size_t at = 0; at < bytes.size();) {
    const arm64::Packet k = arm64::read_packet(bytes.data() + at, bytes.data() + bytes.size(), format, 0);
    if (k.type == Pk::kBad) return bytes[at] == 0 ? SIZE_MAX : at;  // zeros may be padding
    if (k.type == Pk::kEnd || k.type == Pk::kOverflow || k.type == Pk::kDiscard) return SIZE_MAX;
    at += k.size;
  }
  return SIZE_MAX;
}

void damage(std::vector<uint8_t>& trace, SimRandom& random) {
  const auto at = [&] { return static_cast<ptrdiff_t>(random.below(trace.size())); };
  switch (random.below(5)) {
    case 0:
      trace[static_cast<size_t>(at())] ^= static_cast<uint8_t>(1U << random.below(8));
      break;
    case 1:
      for (int i = 0; i < 8; ++i) trace[static_cast<size_t>(at())] = static_cast<uint8_t>(random.below(256));
      break;
    case 2: {
      const auto from = at();
      const auto n = std::min<ptrdiff_t>(static_cast<ptrdiff_t>(random.below(40)), std::ssize(trace) - from);
      trace.erase(trace.begin() + from, trace.begin() + from + n);
      break;
    }
    case 3:
      trace.insert(trace.begin() + at(), random.below(40), static_cast<uint8_t>(random.below(2) * 255));
      break;
    default:
      trace.resize(trace.size() - random.below(trace.size()) / 4);
  }
}

TEST(EtmFlow, DamagedTraces) {
  for (uint64_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    EtmSettings settings;
    settings.seed = seed % 20;
    settings.ns = 6'000;
    settings.changes = static_cast<unsigned>(seed % 3);
    const EtmSimulation sim(settings);
    SimRandom random(seed);
    const auto whole = sim.cpu(0).unit().writer().bytes();
    std::vector<uint8_t> trace(whole.begin(), whole.end());
    for (uint64_t n = random.between(1, 4); n > 0 && trace.size() > 100; --n) damage(trace, random);

    arm64::Config config;
    config.sources.push_back(sim.source(0));
    if (seed % 2 == 0) config.sources[0].idr8 = 20;  // and all of it speculative
    config.time = TimeConversion{};
    Stream stream;
    StreamPiece piece;
    piece.bytes = trace;
    stream.pieces = {piece};
    const auto arch = arm64::make_arch(config);
    const std::vector<Segment> segments = arch->split(stream, 0);
    check_cover(stream, segments);
    const auto decoder = arch->decoder(std::span(&stream, 1), sim.text(), {});
    const auto format = arm64::PacketFormat::of(config.sources[0]);
    for (const Segment& s : segments) {
      EtmDecoded d;
      decoder->decode(s, d);
      for (const Gap& g : d.gaps) ASSERT_LE(g.begin, g.end);
      const size_t bad = first_bad(std::span(trace).subspan(s.begin, s.end - s.begin), format);
      if (bad == SIZE_MAX) continue;
      ASSERT_TRUE(std::ranges::any_of(
          d.gaps, [&](const Gap& g) { return g.begin <= s.begin + bad && g.end >= s.end; }))
          << "bytes from " << s.begin + bad << " to " << s.end;
    }
  }
}

// Loads that take atoms cannot be followed: nothing is decoded, which is reported.
TEST(ArmDamage, TraceOfLoadsIsNotDecoded) {
  EtmWriter w;
  w.async();
  w.trace_info({});
  w.flush();
  Stream stream;
  StreamPiece piece;
  piece.bytes = w.bytes();
  stream.pieces = {piece};
  arm64::Source source = etm4_source();
  source.configr |= 2;
  const auto arch = arm64::make_arch({.sources = {source}, .time = {}});
  const auto segments = arch->split(stream, 0);
  ASSERT_EQ(segments.size(), 1U);
  ASSERT_TRUE(segments[0].before);
  EXPECT_EQ(segments[0].before->code, Code::kLoadStoreTrace);
  EXPECT_EQ(segments[0].before->end - segments[0].before->begin, w.bytes().size());
  EXPECT_EQ(segments[0].begin, segments[0].end);
}

}  // namespace
}  // namespace asof::test
