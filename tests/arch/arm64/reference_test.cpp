// OpenCSD as a reference decodes segments independently, as the fast engine does. Both must agree on each.
#include <gtest/gtest.h>

#include <array>
#include <optional>

#include "tests/arch/arm64/random_simulation.h"

namespace asof::test {
namespace {

class ReferenceArm64 : public testing::Test {
 protected:
  // A loop of two instructions.
  ReferenceArm64() {
    code_ = a64::bytes_of(std::array{a64::kNop, a64::b_cond(kMain + 4, kMain, 0), a64::kNop, a64::kNop});
    Builder builder;
    builder.add_layer({.range = range_of(kMain, code_.size()), .bytes = code_});
    text_.emplace(std::move(builder).build());
  }
  void sync() {
    trace_.async();
    trace_.trace_info({});
  }
  std::vector<EtmDecoded> decode(bool reference) {
    trace_.flush();
    Stream stream;
    StreamPiece piece;
    piece.bytes = trace_.bytes();
    stream.pieces = {piece};
    const auto arch = arm64::make_arch({.sources = {etm4_source()}, .time = {}});
    DecodeOptions options;
    options.reference_engine = reference;
    const auto decoder = arch->decoder({&stream, 1}, *text_, options);
    std::vector<EtmDecoded> out;
    for (const Segment& s : arch->split(stream, 0)) decoder->decode(s, out.emplace_back());
    return out;
  }
  static std::vector<Addr> addresses(const EtmDecoded& d) {
    std::vector<Addr> out;
    for (const EtmRan& r : d.ran) out.push_back(r.ip);
    return out;
  }

  EtmWriter trace_;

 private:
  std::vector<uint8_t> code_;
  std::optional<TextStore> text_;
};

// A trace unit may write pending atoms after the sync point's trace info, before the address at which the
// next segment starts (seen on a Cortex-A72).
TEST_F(ReferenceArm64, AtomsAfterTheNextSyncPoint) {
  sync();
  trace_.address_with_context(kMain, {});
  trace_.atoms("EE");
  sync();
  trace_.atoms("E");
  trace_.address_with_context(kMain, {});
  trace_.atoms("EE");
  const std::vector<EtmDecoded> ours = decode(false), theirs = decode(true);
  ASSERT_EQ(ours.size(), 2U);
  ASSERT_EQ(theirs.size(), 2U);
  const std::vector<Addr> thrice = {kMain, kMain + 4, kMain, kMain + 4, kMain, kMain + 4};
  EXPECT_EQ(addresses(ours[0]), thrice);
  EXPECT_EQ(addresses(theirs[0]), thrice);
  EXPECT_EQ(addresses(theirs[1]), addresses(ours[1]));
  EXPECT_EQ(addresses(ours[1]).size(), 4U);
}

// OpenCSD reports this for each segment that it begins: it does not mean that anything is missing.
TEST_F(ReferenceArm64, NoGapWhereItBegins) {
  sync();
  trace_.address_with_context(kMain, {});
  trace_.atoms("EEE");
  sync();
  trace_.address_with_context(kMain, {});
  trace_.atoms("E");
  const std::vector<EtmDecoded> segments = decode(true);
  ASSERT_EQ(segments.size(), 2U);
  for (const EtmDecoded& d : segments) {
    EXPECT_TRUE(d.gaps.empty()) << d.gaps[0].reason;
    EXPECT_FALSE(d.ran.empty());
    for (const EtmRan& r : d.ran) EXPECT_FALSE(r.after_gap);
  }
}

}  // namespace
}  // namespace asof::test
