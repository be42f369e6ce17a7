// The return stack where branches are broadcast: the unit puts no call on it there (Arm DDI 0487, R_WRXCW), and the trace
// does not say where that is.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/arch/arm64/random_simulation.h"

namespace asof::test {
namespace {

constexpr Addr kOuter = kMain + 0x40, kInner = kMain + 0x80;

EtmDecoded decode(const EtmWriter& trace, uint32_t more_configuration) {
  std::vector<uint8_t> text(0x100);
  const auto put = [&text](Addr at, uint32_t word) {
    const auto bytes = a64::bytes_of(word);
    std::copy(bytes.begin(), bytes.end(), text.begin() + static_cast<std::ptrdiff_t>(at - kMain));
  };
  for (size_t at = 0; at < text.size(); at += 4) put(kMain + at, a64::kNop);
  put(kMain, a64::bl(kMain, kOuter));
  put(kMain + 4, a64::b(kMain + 4, kMain));
  put(kOuter, a64::bl(kOuter, kInner));
  put(kOuter + 4, a64::kRet);
  put(kInner, a64::kRet);
  Builder builder;
  builder.add_layer({.range = range_of(kMain, text.size()), .bytes = text});
  const TextStore store = std::move(builder).build();
  Stream stream;
  StreamPiece piece;
  piece.bytes = trace.bytes();
  stream.pieces = {piece};
  arm64::Source source = etm4_source(0x10, true);
  source.configr |= more_configuration;
  const auto arch = arm64::make_arch({.sources = {source}, .time = {}});
  const auto decoder = arch->decoder({&stream, 1}, store, {});
  EtmDecoded out;
  for (const Segment& s : arch->split(stream, 0)) decoder->decode(s, out);
  return out;
}

std::vector<Addr> sure(const EtmDecoded& d) {
  std::vector<Addr> out;
  for (const EtmRan& r : d.ran) {
    if (r.confidence != Confidence::kAmbiguous) out.push_back(r.ip);
  }
  return out;
}

EtmWriter trace_from_main() {
  EtmWriter w;
  w.async();
  w.trace_info({});
  w.trace_on();
  w.address_with_context(kMain, {});
  return w;
}

// The call at kOuter is broadcast, and not on the unit's stack: the return to it has an address, the one after it, to
// kMain + 4, has none.
TEST(ReturnStackArm64, OfCodeThatIsBroadcastInPartIsNotSure) {
  EtmWriter w = trace_from_main();
  w.atoms("EE");
  w.address(kInner);
  w.atoms("E");
  w.address(kOuter + 4);
  w.atoms("EE");
  w.flush();
  EXPECT_EQ(sure(decode(w, 8)), (std::vector<Addr>{kMain, kOuter, kInner, kOuter + 4}));
}

// All of it is: every return has an address.
TEST(ReturnStackArm64, OfCodeThatIsAllBroadcastIsNotUsed) {
  EtmWriter w = trace_from_main();
  w.atoms("E");
  w.address(kOuter);
  w.atoms("E");
  w.address(kInner);
  w.atoms("E");
  w.address(kOuter + 4);
  w.atoms("E");
  w.address(kMain + 4);
  w.atoms("E");
  w.flush();
  EXPECT_EQ(sure(decode(w, 8)), (std::vector<Addr>{kMain, kOuter, kInner, kOuter + 4, kMain + 4}));
}

TEST(ReturnStackArm64, WithoutBroadcastingIsSure) {
  EtmWriter w = trace_from_main();
  w.atoms("EEEEE");
  w.flush();
  EXPECT_EQ(sure(decode(w, 0)), (std::vector<Addr>{kMain, kOuter, kInner, kOuter + 4, kMain + 4}));
}

}  // namespace
}  // namespace asof::test
