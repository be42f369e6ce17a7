// Wrong text that OpenCSD 1.3.3 walks without an error, in three cases, and what
// the flow reports there: text without changes, so that there is no other version
// to use.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/arch/arm64/random_simulation.h"

namespace asof::test {
namespace {

constexpr Addr kVector = kMain + 0x100;

struct Outcome {
  CsdDecode reference;
  EtmDecoded ours;
};

// `words` from kMain on, and a vector that returns.
Outcome decode(const std::vector<uint32_t>& words, const EtmWriter& trace) {
  std::vector<uint8_t> bytes(0x110);
  const auto put = [&bytes](size_t at, uint32_t w) {
    const std::vector<uint8_t> b = a64::bytes_of(w);
    std::copy(b.begin(), b.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
  };
  for (size_t i = 0; i < bytes.size() / 4; ++i) put(4 * i, a64::kNop);
  for (size_t i = 0; i < words.size(); ++i) put(4 * i, words[i]);
  put(kVector - kMain, a64::kNop);
  put(kVector - kMain + 4, a64::kEret);

  Outcome out;
  const arm64::Source source = etm4_source();
  out.reference = csd_decode(source, trace.bytes(), [&bytes](Addr a, std::span<uint8_t> to) -> uint32_t {
    if (a < kMain || a >= kMain + bytes.size()) return 0;
    const size_t n = std::min(to.size(), bytes.size() - (a - kMain));
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(a - kMain), n, to.begin());
    return static_cast<uint32_t>(n);
  });
  Builder builder;
  Layer layer;
  layer.range = range_of(kMain, bytes.size());
  layer.bytes = bytes;
  builder.add_layer(layer);
  const TextStore text = std::move(builder).build();
  Stream stream;
  StreamPiece piece;
  piece.bytes = trace.bytes();
  stream.pieces = {piece};
  const auto arch = arm64::make_arch({.sources = {source}, .time = {}});
  const auto decoder = arch->decoder({&stream, 1}, text, {});
  for (const Segment& s : arch->split(stream, 0)) decoder->decode(s, out.ours);
  return out;
}

EtmWriter start() {
  EtmWriter w;
  w.async();
  w.trace_info({});
  w.trace_on();
  w.address_with_context(kMain, {});
  return w;
}

// Neither an error nor a hole: ranges from the beginning.
void expect_unnoticed(const CsdDecode& reference, size_t least) {
  EXPECT_FALSE(reference.failed);
  EXPECT_GE(reference.instructions.size(), least);
  for (const std::string& e : reference.elements) EXPECT_EQ(e.find("NACC"), std::string::npos) << e;
  EXPECT_TRUE(std::none_of(reference.elements.begin() + 1, reference.elements.end(),
                           [](const std::string& e) { return e.contains("NO_SYNC"); }));
}

std::vector<Code> codes(const EtmDecoded& d) {
  std::vector<Code> out;
  for (const Gap& g : d.gaps) out.emplace_back(g.code);
  return out;
}

TEST(WrongText, NotTakenAtAnUnconditionalBranch) {
  EtmWriter w = start();
  w.atoms("N");  // really: NOP at main, followed by a conditional branch
  w.atoms("E");
  w.address(kMain + 0x40);
  w.atoms("E");
  w.flush();
  const Outcome o = decode({a64::b(kMain, kMain + 0x20), a64::b_cond(kMain + 4, kMain, 0), a64::br(1)}, w);
  expect_unnoticed(o.reference, 1);
  EXPECT_EQ(codes(o.ours).at(0), Code::kTraceContradictsText) << o.ours.gaps.at(0).reason;
}

TEST(WrongText, BranchBeforeAnExceptionsAddress) {
  EtmWriter w = start();
  w.exception(etm_exception::kIrq, kMain + 12);  // really: three NOPs
  w.address(kVector);
  w.atoms("E");
  w.address(kMain + 12);
  w.flush();
  const Outcome o = decode({a64::kNop, a64::b(kMain + 4, kMain + 0x40), a64::kNop, a64::kNop}, w);
  expect_unnoticed(o.reference, 3);
  EXPECT_EQ(codes(o.ours), (std::vector<Code>{Code::kInterruptNotReached}));
  // What follows the exception is right again.
  ASSERT_GE(o.ours.ran.size(), 2U);
  EXPECT_EQ(o.ours.ran.back().ip, kVector + 4);
  for (const EtmRan& r : o.ours.ran) EXPECT_NE(r.ip, kMain + 8);
}

TEST(WrongText, ExceptionsAddressIsNotOnThePath) {
  EtmWriter w = start();
  w.atoms("E");  // to main + 0x40, by the text
  w.exception(etm_exception::kIrq,
              kMain + 16);  // really: the branch went elsewhere
  w.address(kVector);
  w.atoms("E");
  w.address(kMain + 16);
  w.flush();
  const Outcome o = decode({a64::b(kMain, kMain + 0x40)}, w);
  // It continues to the end of the text that it has.
  EXPECT_FALSE(o.reference.failed);
  EXPECT_NE(std::ranges::find(o.reference.instructions, kMain + 0x44), o.reference.instructions.end());
  EXPECT_EQ(codes(o.ours), (std::vector<Code>{Code::kInterruptNotReached}));
  EXPECT_EQ(o.ours.ran.back().ip, kVector + 4);
  for (const EtmRan& r : o.ours.ran) EXPECT_NE(r.ip, kMain + 0x44);
}

// The same three traces with the text that was there: nothing to report.
TEST(WrongText, RightTextIsNotReported) {
  EtmWriter w = start();
  w.atoms("N");
  w.exception(etm_exception::kIrq, kMain + 12);
  w.address(kVector);
  w.atoms("E");
  w.address(kMain + 12);
  w.atoms("E");
  w.flush();
  const Outcome o =
      decode({a64::kNop, a64::b_cond(kMain + 4, kMain, 0), a64::kNop, a64::b(kMain + 12, kMain)}, w);
  EXPECT_TRUE(o.ours.gaps.empty()) << o.ours.gaps[0].reason;
  std::vector<Addr> ours;
  for (const EtmRan& r : o.ours.ran) ours.push_back(r.ip);
  EXPECT_EQ(ours, o.reference.instructions);
  EXPECT_EQ(ours.size(), 6U);
}

}  // namespace
}  // namespace asof::test
