// Q elements: how far the path of instructions that have no elements of their own is certain.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/arch/arm64/random_simulation.h"

namespace asof::test {
namespace {

class QElements : public testing::Test {
 protected:
  QElements() {
    text.assign(0x200, 0);
    for (size_t at = 0; at < text.size(); at += 4) put(kMain + at, a64::kNop);
    w.async();
    w.trace_info({});
    w.trace_on();
    w.address_with_context(kMain, {});
  }
  void put(Addr at, uint32_t word) {
    const auto bytes = a64::bytes_of(word);
    std::copy(bytes.begin(), bytes.end(), text.begin() + static_cast<std::ptrdiff_t>(at - kMain));
  }
  EtmDecoded decode() {
    w.flush();
    Builder builder;
    builder.add_layer({.range = range_of(kMain, text.size()), .bytes = text});
    const TextStore store = std::move(builder).build();
    Stream stream;
    StreamPiece piece;
    piece.bytes = w.bytes();
    stream.pieces = {piece};
    arm64::Source source = etm4_source(0x10, true);
    source.idr0 |= 3U << 15U;  // TRCIDR0.QSUPP
    const auto arch = arm64::make_arch({.sources = {source}, .time = {}});
    const auto decoder = arch->decoder({&stream, 1}, store, {});
    EtmDecoded out;
    for (const Segment& s : arch->split(stream, 0)) decoder->decode(s, out);
    return out;
  }
  static std::vector<Addr> ran(const EtmDecoded& d) {
    std::vector<Addr> out;
    for (const EtmRan& r : d.ran) out.push_back(r.ip - kMain);
    return out;
  }
  EtmWriter w;
  std::vector<uint8_t> text;
};

using Offsets = std::vector<Addr>;

// Straight, and over a branch that is always taken; what follows continues from the address.
TEST_F(QElements, CountedPathWithoutDecisions) {
  put(kMain + 4, a64::b(kMain + 4, kMain + 0x40));
  put(kMain + 0x50, a64::b(kMain + 0x50, kMain));
  w.q_address(4, kMain + 0x48);
  w.atoms("E");
  const EtmDecoded d = decode();
  EXPECT_TRUE(d.gaps.empty()) << d.gaps[0].reason;
  EXPECT_EQ(ran(d), (Offsets{0, 4, 0x40, 0x44, 0x48, 0x4c, 0x50}));
}

// The address is in a packet of its own.
TEST_F(QElements, AddressAfterIt) {
  put(kMain + 0x10, a64::b(kMain + 0x10, kMain));
  w.q(3);
  w.address(kMain + 0xc);
  w.atoms("E");
  const EtmDecoded d = decode();
  EXPECT_TRUE(d.gaps.empty()) << d.gaps[0].reason;
  EXPECT_EQ(ran(d), (Offsets{0, 4, 8, 0xc, 0x10}));
}

// The address shows a decision at the very end: taken, not taken, or the target of an indirect branch.
TEST_F(QElements, DecisionAtTheEnd) {
  put(kMain + 8, a64::b_cond(kMain + 8, kMain + 0x40, 0));
  w.q_address(3, kMain + 0x40);
  put(kMain + 0x44, a64::br(1));
  w.q_address(2, kMain + 0x80);
  put(kMain + 0x84, a64::b_cond(kMain + 0x84, kMain, 0));
  w.q_address(2, kMain + 0x88);
  put(kMain + 0x88, a64::b(kMain + 0x88, kMain));
  w.atoms("E");
  const EtmDecoded d = decode();
  EXPECT_TRUE(d.gaps.empty()) << d.gaps[0].reason;
  EXPECT_EQ(ran(d), (Offsets{0, 4, 8, 0x40, 0x44, 0x80, 0x84, 0x88}));
}

// The path after a decision is not known: a gap, up to the address.
TEST_F(QElements, DecisionOnThePath) {
  put(kMain + 8, a64::b_cond(kMain + 8, kMain + 0x40, 0));
  put(kMain + 0x64, a64::b(kMain + 0x64, kMain));
  w.q_address(9, kMain + 0x60);
  w.atoms("E");
  const EtmDecoded d = decode();
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_EQ(d.gaps[0].code, Code::kTraceContradictsText);
  EXPECT_EQ(d.gaps[0].resume_ip, kMain + 0x60);
  EXPECT_EQ(ran(d), (Offsets{0, 4, 0x60, 0x64}));
}

TEST_F(QElements, NoCount) {
  put(kMain + 0x64, a64::b(kMain + 0x64, kMain));
  w.q();
  w.address(kMain + 0x60);
  w.atoms("E");
  const EtmDecoded d = decode();
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_EQ(d.gaps[0].resume_ip, kMain + 0x60);
  EXPECT_EQ(ran(d), (Offsets{0x60, 0x64}));
}

// The text leads to another address: it is not the text that ran.
TEST_F(QElements, WrongTextIsNoticed) {
  put(kMain + 4, a64::b(kMain + 4, kMain + 0x40));
  put(kMain + 0x14, a64::b(kMain + 0x14, kMain));
  w.q_address(4, kMain + 0x10);  // really four NOPs
  w.atoms("E");
  const EtmDecoded d = decode();
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_EQ(d.gaps[0].code, Code::kSyncPointNotReached);
  EXPECT_EQ(ran(d), (Offsets{0x10, 0x14}));
}

// Calls inside may or may not be on the trace unit's return stack: returns after it that have no address are
// a gap.
TEST_F(QElements, ReturnStackIsUnknownAfterIt) {
  put(kMain + 4, a64::bl(kMain + 4, kMain + 0x40));
  put(kMain + 0x44, a64::kRet);
  w.q_address(3, kMain + 0x44);
  w.atoms("EE");
  const EtmDecoded d = decode();
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_EQ(d.gaps[0].code, Code::kReturnWithoutItsCall);
  EXPECT_EQ(ran(d), (Offsets{0, 4, 0x40, 0x44}));
}

}  // namespace
}  // namespace asof::test
