// Plain packets read in one pass, into the list or bypassing it, give what the packet reader gives for each.
#include "arch/arm64/elements_plain.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "tests/support/etm_opencsd.h"
#include "tests/support/etm_writer.h"
#include "tests/support/sim_random.h"

namespace asof::arm64 {
namespace {

using namespace asof::test;

// One element of the trace, with the offset of its packet.
struct ElementAt {
  El kind = El::kBad;
  uint64_t value = 0;
  uint32_t offset = 0;
  bool operator==(const ElementAt&) const = default;
};

std::vector<uint8_t> random_trace(SimRandom& random) {
  EtmWriter w;
  w.async();
  w.trace_info({});
  w.address_with_context(0xffff800010000000, {});
  uint64_t time = random.below(uint64_t{1} << 40);
  for (int i = 0; i < 400; ++i) {
    switch (random.below(8)) {
      case 0:
        w.address(0xffff800010000000 + 4 * random.below(uint64_t{1} << random.between(1, 30)));
        break;
      case 1:
        w.address(0x400000 + 4 * random.below(50));
        break;
      case 2:
        if (random.chance(5)) time = random.below(UINT64_MAX);  // all of its bytes
        w.timestamp(time += random.below(uint64_t{1} << random.between(1, 20)),
                    random.chance(50) ? std::optional<uint32_t>(static_cast<uint32_t>(random.below(4000)))
                                      : std::nullopt);
        break;
      case 3:
        random.chance(50) ? w.cycle_count_f1(static_cast<uint32_t>(random.below(3000)))
                          : w.cycle_count_f3(static_cast<uint32_t>(random.below(4)));
        break;
      default:
        for (uint64_t n = random.below(60); n > 0; --n) w.atom(random.chance(80));
    }
    if (random.chance(3)) w.event(1);
  }
  w.flush();
  return {w.bytes().begin(), w.bytes().end()};
}

std::vector<ElementAt> by_packet(std::span<const uint8_t> bytes, const PacketFormat& format) {
  std::vector<ElementAt> out;
  std::array<std::pair<uint64_t, uint8_t>, 3> last{};
  uint64_t time = 0;
  for (size_t at = 0; at < bytes.size();) {
    const Packet k = read_packet(bytes.data() + at, bytes.data() + bytes.size(), format, 0);
    const auto offset = static_cast<uint32_t>(at);
    at += k.size;
    if (k.type == Pk::kEnd || k.type == Pk::kBad) break;
    for (uint32_t i = 0; i < k.atom_count; ++i) out.push_back({El::kAtoms, k.atoms >> i & 1, offset});
    if (k.type == Pk::kTimestamp) {
      const uint64_t mask = k.value_bits == 64 ? ~0ULL : (1ULL << k.value_bits) - 1;
      time = (time & ~mask) | k.value;
      if (time != 0) out.push_back({El::kTime, time, offset});
    }
    if (k.type == Pk::kEvent) out.push_back({El::kEvent, k.count, offset});
    if (k.type != Pk::kAddress) continue;
    uint64_t value = k.value;
    if (k.form == AddrForm::kExact) {
      value = last[k.isa].first;
    } else if (k.form != AddrForm::kLong64) {
      const uint64_t mask = (1ULL << (k.form == AddrForm::kShort ? k.addr_bits : 32)) - 1;
      value = (last[0].first & ~mask) | k.value;
    }
    last = {std::pair{value, uint8_t{0}}, last[0], last[1]};
    out.push_back({El::kAddress, value, offset});
  }
  return out;
}

void add(std::vector<ElementAt>& out, const ElementParser& parser, size_t index) {
  const Element& e = parser[index];
  if (e.kind == El::kAtoms) {
    for (uint32_t i = 0; i < e.count; ++i)
      out.push_back({El::kAtoms, e.value >> i & 1, parser.offset_of_atom(index, i)});
  } else if (e.kind == El::kAddress || e.kind == El::kTime) {
    out.push_back({e.kind, e.value, e.offset});
  } else if (e.kind == El::kEvent) {
    out.push_back({e.kind, e.type, e.offset});
  }
}

// Takes an element, refuses it or stops, at random; only atoms have offsets.
struct Taker {
  SimRandom& random;
  std::vector<ElementAt>& out;
  std::vector<uint64_t> times;
  uint32_t atom_count = 0;

  ElementParser::Take choose() {
    return random.chance(80)   ? ElementParser::Take::kOn
           : random.chance(50) ? ElementParser::Take::kStop
                               : ElementParser::Take::kRefuse;
  }
  ElementParser::Take atoms(uint32_t value, uint32_t count) {
    const ElementParser::Take take = choose();
    if (take == ElementParser::Take::kRefuse) return take;
    for (uint32_t i = 0; i < count; ++i) out.push_back({El::kAtoms, value >> i & 1, 0});
    atom_count = count;
    return take;
  }
  ElementParser::Take address(Addr to, uint8_t, uint32_t) {
    const ElementParser::Take take = choose();
    if (take != ElementParser::Take::kRefuse) out.push_back({El::kAddress, to, 0});
    atom_count = 0;
    return take;
  }
  void time(uint64_t value, uint32_t number) {
    EXPECT_EQ(number, times.size());
    times.push_back(value);
    out.push_back({El::kTime, value, 0});
    atom_count = 0;
  }
};

TEST(PlainElements, SayWhatThePacketsSay) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    SimRandom random(seed);
    const std::vector<uint8_t> trace = random_trace(random);
    const PacketFormat format = PacketFormat::of(etm4_source());
    ASSERT_EQ(format.max_spec, 0);
    const std::vector<ElementAt> want = by_packet(trace, format);
    ASSERT_GT(want.size(), 1'000U);

    std::vector<ElementAt> listed;
    ElementParser parser(format);
    parser.start(trace, trace.size());
    for (size_t i = 0; parser.has(i); ++i) add(listed, parser, i);
    ASSERT_EQ(listed, want);

    // Bypassing the list, with occasional reads of it; atoms are sometimes taken back.
    std::vector<ElementAt> passed;
    Taker taker{random, passed, {}};
    parser.start(trace, trace.size());
    for (size_t i = 0;;) {
      parser.drop_before(i);
      const ElementParser::Passed p = parser.pass_plain(taker);
      i += p.elements;
      if (p.last == ElementParser::Take::kStop && taker.atom_count != 0 && random.chance(50)) {
        parser.keep_atoms(p.offset);
        ASSERT_TRUE(parser.has_parsed(i - 1));
        ASSERT_EQ(parser[i - 1].kind, El::kAtoms);
        ASSERT_EQ(parser[i - 1].count, taker.atom_count);
        ASSERT_EQ(parser[i - 1].offset, p.offset);
      }
      if (!parser.has(i)) break;
      if (parser[i].kind == El::kTime) {
        taker.time(parser[i].value, parser[i].time);
        ++i;
        continue;
      }
      add(passed, parser, i++);
    }
    ASSERT_EQ(passed.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(passed[i].kind, want[i].kind) << i;
      ASSERT_EQ(passed[i].value, want[i].value) << i;
    }
  }
}

}  // namespace
}  // namespace asof::arm64
