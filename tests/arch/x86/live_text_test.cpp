// Text that changes while the trace runs: the version that the flow takes at a time, by where the changed bytes
// lie, and in one state of the text.
#include "tests/arch/x86/live_text_fixture.h"

namespace asof::x86::test {
namespace {

std::vector<Addr> join(std::initializer_list<std::vector<Addr>> parts) {
  std::vector<Addr> out;
  for (const auto& p : parts) out.insert(out.end(), p.begin(), p.end());
  return out;
}

TEST(LiveText, OldBeforeNewAfter) {
  KeyFixture s;
  s.poke_on(1000);
  s.visit_off(100);
  s.time(200);
  s.visit_on(2000);
  s.time(2100);
  // libipt also reads the bytes as of its time, so it agrees here.
  const Decoded d = s.expect(join({kOffPath, kOnPath}));
  expect_all(d, Confidence::kCertain);
  EXPECT_EQ(d.ran[0].length, 5);
  EXPECT_EQ(d.ran[0].bytes[0], 0x0f);
  EXPECT_EQ(d.ran[5].bytes[0], 0xe9);
}

TEST(LiveText, OnOffOnOff) {
  KeyFixture s;
  s.poke_on(1000);
  s.poke_off(3000);
  s.poke_on(5000);
  s.visit_off(500);
  s.time(600);
  s.visit_on(2000);
  s.time(2100);
  s.visit_off(4000);
  s.time(4100);
  s.visit_on(6000);
  s.time(6100);
  expect_all(s.expect(join({kOffPath, kOnPath, kOffPath, kOnPath})), Confidence::kCertain);
}

TEST(LiveText, SiteAsFirstMiddleLastAndOnlyInstruction) {
  // last: NOP NOP [NOP2 -> JMP +2]; the old version continues into the next block.
  const Bytes nop2 = {0x66, 0x90};
  const Bytes jmp2 = {0xeb, 0x02};
  for (const Time t : {500, 1500}) {
    SCOPED_TRACE(t);
    FlowFixture s;
    s.with_clock();
    s.code(A, {0x90, 0x90}).code(A + 2, nop2).code(A + 4, {0x90, 0x90, 0x90, 0x90, 0x90});
    s.poke(A + 2, nop2, jmp2, 1000);
    s.start(A, static_cast<uint64_t>(t));
    s.pt.fup(A + 8);
    s.pt.tip_pgd();
    std::vector<Addr> want = {A, A + 1, A + 2};
    if (t < 1000) want.insert(want.end(), {A + 4, A + 5});
    want.insert(want.end(), {A + 6, A + 7});
    s.pt.tsc(static_cast<uint64_t>(t + 10));
    expect_all(s.expect(want), Confidence::kCertain);
  }
  // only: the site is a branch itself, between branches.
  for (const Time t : {500, 1500}) {
    SCOPED_TRACE(t);
    FlowFixture s;
    s.with_clock();
    s.code(A, {0xeb, 0x00}).code(A + 2, jmp2).code(A + 4, {0x90, 0x90, 0x90, 0x90, 0x90});
    s.poke(A + 2, jmp2, nop2, 1000);
    s.start(A, static_cast<uint64_t>(t));
    s.pt.fup(A + 8);
    s.pt.tip_pgd();
    s.pt.tsc(static_cast<uint64_t>(t + 10));
    std::vector<Addr> want = {A, A + 2};
    if (t > 1000) want.insert(want.end(), {A + 4, A + 5});
    want.insert(want.end(), {A + 6, A + 7});
    expect_all(s.expect(want), Confidence::kCertain);
  }
}

TEST(LiveText, AdjacentSites) {
  // Three two-byte sites in a row, each poked at its own time; JMP +n over what follows when switched on.
  const Bytes nop2 = {0x66, 0x90};
  for (int on = 0; on <= 3; ++on) {
    SCOPED_TRACE(on);
    FlowFixture s;
    s.with_clock();
    for (Addr i = 0; i < 3; ++i) {
      s.code(A + 2 * i, nop2);
      s.poke(A + 2 * i, nop2, {0xeb, 0x00}, static_cast<Time>(1000 * (i + 1)));
    }
    s.code(A + 6, {0x90, 0x90});
    const uint64_t t = static_cast<uint64_t>(500 + 1000 * on);
    s.start(A, t);
    stop_at(s, A + 7);
    s.pt.tsc(t + 10);
    const Decoded d = s.expect({A, A + 2, A + 4, A + 6});
    expect_all(d, Confidence::kCertain);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(d.ran[static_cast<size_t>(i)].bytes[0], i < on ? 0xeb : 0x66);
  }
}

// A poke that begins in the middle of an instruction: its immediate. The instruction spans two cells.
TEST(LiveText, InstructionAcrossACellEnd) {
  for (const Time t : {500, 1500}) {
    FlowFixture s;
    s.with_clock();
    // MOV EAX, imm32, whose upper two bytes are poked; then a branch.
    s.code(A, {0xb8, 0x11, 0x22}).code(A + 3, {0x33, 0x44}).code(A + 5, {0x90, 0x90});
    s.poke(A + 3, {0x33, 0x44}, {0x55, 0x66}, 1000);
    s.start(A, static_cast<uint64_t>(t));
    stop_at(s, A + 6);
    s.pt.tsc(static_cast<uint64_t>(t + 10));
    const Decoded d = s.expect({A, A + 5});
    EXPECT_EQ(d.ran[0].length, 5);
    EXPECT_EQ(d.ran[0].bytes[3], t < 1000 ? 0x33 : 0x55);
    EXPECT_EQ(d.ran[0].bytes[4], t < 1000 ? 0x44 : 0x66);
    expect_all(d, Confidence::kCertain);
  }
}

TEST(LiveText, TextAtFirstAndLast) {
  KeyFixture s;
  s.poke_on(1000);
  s.visit_off(100);
  s.time(200);
  s.visit_on(2000);
  s.time(2100);
  s.options.text_at = TextAt::kFirst;
  const Decoded first = s.decode();
  ASSERT_GE(first.ran.size(), kOffPath.size());
  for (size_t i = 0; i < kOffPath.size(); ++i) EXPECT_EQ(first.ran[i].ip, kOffPath[i]);
  EXPECT_FALSE(first.gaps.empty());  // the second visit contradicts the old text
  EXPECT_FALSE(at_site(first).empty());
  for (const Ran& r : at_site(first)) EXPECT_EQ(r.bytes[0], 0x0f);
  s.options.text_at = TextAt::kLast;
  const Decoded last = s.decode();
  EXPECT_FALSE(last.gaps.empty());
  EXPECT_FALSE(at_site(last).empty());
  for (const Ran& r : at_site(last)) EXPECT_EQ(r.bytes[0], 0xe9);
}

}  // namespace
}  // namespace asof::x86::test
