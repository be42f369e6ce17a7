// The budget of work: text that may have changed at every byte and asks for a decision at every instruction
// costs work in proportion to the trace, and what is given up is a gap.
#include "arch/walk/work.h"

#include <algorithm>

#include "tests/arch/x86/flow_fixture.h"

namespace asof::x86::test {
namespace {

// Calls of the next instruction and branches back, in versions that overlap at every byte.
struct HostileText : FlowFixture {
  explicit HostileText(int versions, int words) {
    Bytes text;
    for (int i = 0; i < 200; ++i) text.insert(text.end(), {0xe8, 0, 0, 0, 0, 0x75, 0xf9});
    code(kCode, text);
    for (int i = 0; i < versions; ++i) code(kCode + static_cast<Addr>(i), text, i, 1'000'000 - i);
    start(kCode);
    options.work_divisor = 64;  // the whole of it takes seconds
    for (int i = 0; i < 47 * words; ++i) pt.tnt(true);
  }
};

TEST(Work, HostileTextIsGivenUp) {
  HostileText s(100, 20);
  const Decoded d = s.decode();
  const auto codes = d.gap_codes();
  EXPECT_NE(std::ranges::find(codes, Code::kTooMuchWork), codes.end());
  for (const Ran& r : d.ran) EXPECT_NE(r.confidence, Confidence::kProved);
}

// What is given up depends on the bytes alone: not on chunks, on caches, or on who decoded what before.
TEST(Work, GivesUpAtTheSamePlaceHoweverItIsDecoded) {
  HostileText s(40, 4);
  s.options.work_divisor = 4096;
  const Decoded d = s.decode_all_ways();
  const auto codes = d.gap_codes();
  EXPECT_NE(std::ranges::find(codes, Code::kTooMuchWork), codes.end());
}

TEST(Work, IsBoundedByTheSizeOfTheTrace) {
  walk::Work part(1'000'000, 1), whole(1'000'000, 1);
  part.start(1000);
  whole.start(1'000'000);
  uint64_t parts = 0, all = 0;
  while (!part.spent()) part.take(1), ++parts;
  while (!whole.spent()) whole.take(1), ++all;
  EXPECT_LT(parts, walk::kWorkPerSegment + 1000 * walk::kWorkPerByte + walk::kWorkPerCapture / 1000 + 2);
  EXPECT_GT(all, 1'000'000 * walk::kWorkPerByte);
  part.start(1000);
  EXPECT_FALSE(part.spent()) << "each segment has its own";
}

}  // namespace
}  // namespace asof::x86::test
