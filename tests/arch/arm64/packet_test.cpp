#include "arch/arm64/packet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "tests/support/etm_opencsd.h"
#include "tests/support/sim_random.h"

namespace asof::arm64 {
namespace {

using asof::test::csd_packets;
using asof::test::CsdPacket;
using Bytes = std::vector<uint8_t>;

constexpr uint8_t kAsync[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80};

Packet read(const Bytes& bytes, const PacketFormat& f = {}) {
  return read_packet(bytes.data(), bytes.data() + bytes.size(), f, 0);
}

TEST(EtmPacket, CutOffIsNeverAPacket) {
  const PacketFormat f = PacketFormat::of(test::etm4_source());
  const std::vector<Bytes> packets{
      {std::begin(kAsync), std::end(kAsync)},
      {0x00, 0x05},
      {0x01, 0x0d, 0x01, 0x83, 0x01, 0x04},
      {0x02, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
      {0x03, 0x01, 0x81, 0x01},
      {0x06, 0x1d},
      {0x06, 0x9d, 0x01},
      {0x0e, 0x85, 0x01},
      {0x2d, 0x81, 0x01},
      {0x81, 0xf1, 1, 2, 3, 4, 5},
      {0x85, 1, 2, 3, 4, 5, 6, 7, 8, 0xf1, 1, 2, 3, 4, 5},
      {0x95, 0x81, 0x01},
      {0x9a, 1, 2, 3, 4},
      {0x9d, 1, 2, 3, 4, 5, 6, 7, 8},
  };
  for (const Bytes& p : packets) {
    SCOPED_TRACE(testing::Message() << std::hex << int{p[0]});
    PacketFormat with_commit = f;
    const bool counts = p[0] == 0x0e;
    with_commit.commit_opt = true;
    const Packet whole = read(p, with_commit);
    EXPECT_NE(whole.type, Pk::kEnd);
    EXPECT_NE(whole.type, Pk::kBad);
    EXPECT_TRUE(counts || whole.size == p.size());
    for (size_t n = 0; n < whole.size; ++n) {
      EXPECT_EQ(read(Bytes(p.begin(), p.begin() + static_cast<ptrdiff_t>(n)), with_commit).type, Pk::kEnd)
          << n;
    }
  }
}

TEST(EtmPacket, AtomPatterns) {
  const auto atoms = [](uint8_t h) {
    const Packet k = read({h});
    std::string out;
    for (unsigned i = 0; i < k.atom_count; ++i) out += (k.atoms >> i & 1) != 0 ? 'E' : 'N';
    return out;
  };
  EXPECT_EQ(atoms(0xf6), "N");
  EXPECT_EQ(atoms(0xf7), "E");
  EXPECT_EQ(atoms(0xd9), "EN");
  EXPECT_EQ(atoms(0xfc), "NNE");
  EXPECT_EQ(atoms(0xdc), "NEEE");
  EXPECT_EQ(atoms(0xde), "NENE");
  EXPECT_EQ(atoms(0xf5), "NEEEE");
  EXPECT_EQ(atoms(0xd6), "NENEN");
  EXPECT_EQ(atoms(0xc0), "EEEE");
  EXPECT_EQ(atoms(0xe0), "EEEN");
  EXPECT_EQ(atoms(0xd4), std::string(24, 'E'));
}

TEST(EtmPacket, FindAsync) {
  Bytes b(5, 0xf7);
  b.insert(b.end(), 3, 0);  // zeros before it are not part of it
  b.insert(b.end(), std::begin(kAsync), std::end(kAsync));
  EXPECT_EQ(find_async(b, 0), 8U);
  EXPECT_EQ(find_async(b, 9), SIZE_MAX);
  b.resize(b.size() - 1);
  EXPECT_EQ(find_async(b, 0), SIZE_MAX);
  EXPECT_EQ(find_async({}, 0), SIZE_MAX);
}

TEST(EtmPacket, FindAsyncAmongZeros) {
  for (uint64_t seed = 1; seed <= 3'000; ++seed) {
    test::SimRandom random(seed);
    Bytes b;
    while (b.size() < 200) {
      b.insert(b.end(), random.below(25), 0);
      b.push_back(random.chance(60) ? uint8_t{0x80} : static_cast<uint8_t>(random.between(1, 255)));
      if (random.chance(20)) b.insert(b.end(), random.below(30), 0x95);
    }
    b.resize(random.below(b.size() + 1));
    const size_t from = random.below(b.size() + 2);
    size_t want = SIZE_MAX;
    for (size_t at = from; at + std::size(kAsync) <= b.size() && want == SIZE_MAX; ++at) {
      if (std::equal(std::begin(kAsync), std::end(kAsync), b.begin() + static_cast<ptrdiff_t>(at))) want = at;
    }
    ASSERT_EQ(find_async(b, from), want) << seed;
  }
}

// The name of a packet in OpenCSD's listing; empty: no packet.
std::string_view name_of(const Packet& k) {
  switch (k.type) {
    case Pk::kAsync:
      return "I_ASYNC";
    case Pk::kDiscard:
      return "I_DISCARD";
    case Pk::kOverflow:
      return "I_OVERFLOW";
    case Pk::kTraceInfo:
      return "I_TRACE_INFO";
    case Pk::kTimestamp:
      return "I_TIMESTAMP";
    case Pk::kTraceOn:
      return "I_TRACE_ON";
    case Pk::kException:
      return "I_EXCEPT";
    case Pk::kExceptionReturn:
      return "I_EXCEPT_RTN";
    case Pk::kCycleCount:
      return "I_CCNT";
    case Pk::kCommit:
      return "I_COMMIT";
    case Pk::kCancel:
      return "I_CANCEL";
    case Pk::kMispredict:
      return "I_MISPREDICT";
    case Pk::kEvent:
      return "I_EVENT";
    case Pk::kContext:
      return "I_CTXT";
    case Pk::kAddress:
      return "I_ADDR";
    case Pk::kQ:
      return "I_Q";
    case Pk::kAtoms:
      return "I_ATOM";
    default:
      return {};
  }
}

bool same_address(const Packet& k, const CsdPacket& c) {
  return k.form != AddrForm::kLong64 || k.value == c.packet.v_addr.val;
}

// Random bytes after a sync point, packet by packet as OpenCSD's processor reads them, up to the first bytes
// that are not a packet. Nearly every kind of packet occurs; payloads are arbitrary.
TEST(EtmPacket, RandomBytesAsOpenCsdReadsThem) {
  size_t compared = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    test::SimRandom random(seed);
    Source source = test::etm4_source();
    if (seed % 4 == 1) source.idr0 &= ~(1U << 29);  // cycle counts commit
    if (seed % 4 == 2) source.idr8 = 20;
    if (seed % 4 == 3) source.configr |= 1U << 4;
    const PacketFormat format = PacketFormat::of(source);
    Bytes trace(std::begin(kAsync), std::end(kAsync));
    trace.insert(trace.end(), {0x01, 0x01, 0x00});
    while (trace.size() < 400) {  // random bytes, enough of them to form a packet
      Bytes next(24);
      for (uint8_t& b : next) b = static_cast<uint8_t>(random.below(256));
      const Packet k = read(next, format);
      // A field that never ends: this reader stops at its maximum length, OpenCSD does not.
      const bool endless = (next[k.size - 1] & 0x80) != 0 && k.type != Pk::kAddress &&
                           k.type != Pk::kContext && k.type != Pk::kAtoms && k.size > 1;
      if ((k.type == Pk::kTraceInfo && k.size > 5) || (k.type == Pk::kCycleCount && k.size > 4)) continue;
      if (name_of(k).empty() || k.type == Pk::kAsync || endless) continue;
      trace.insert(trace.end(), next.begin(), next.begin() + k.size);
    }
    const std::vector<CsdPacket> listed = csd_packets(source, trace);
    size_t at = 0;
    for (const CsdPacket& c : listed) {
      const Packet k = read_packet(trace.data() + at, trace.data() + trace.size(), format, 0);
      const std::string_view name = name_of(k);
      if (k.type == Pk::kEnd) break;
      ASSERT_FALSE(name.empty()) << "seed " << seed << ": " << c.text;
      ASSERT_EQ(c.offset, at) << "seed " << seed << ": " << c.text;
      ASSERT_TRUE(c.text.starts_with(name))
          << "seed " << seed << " at " << at << ": " << c.text << ", not " << name;
      ASSERT_TRUE(same_address(k, c)) << c.text;
      if (k.type == Pk::kAtoms) {
        ASSERT_EQ(k.atom_count, c.packet.atom.num) << c.text;
        ASSERT_EQ(k.atoms, c.packet.atom.En_bits) << c.text;
      }
      ASSERT_TRUE(k.type != Pk::kException || k.count == c.packet.exception_info.exceptionType) << c.text;
      ASSERT_TRUE(k.type != Pk::kCommit || k.count == c.packet.commit_elements) << c.text;
      ASSERT_TRUE(k.type != Pk::kCancel || k.count == c.packet.cancel_elements) << c.text;
      at += k.size;
      ++compared;
    }
  }
  EXPECT_GT(compared, 30'000U);
}

}  // namespace
}  // namespace asof::arm64
