// Text poked by way of INT3: visits in the window, emulated calls, and probes that are optimised later.
#include "tests/arch/x86/live_text_fixture.h"

namespace asof::x86::test {
namespace {

TEST(LiveText, VisitInTheInt3WindowNeedsNoBytes) {
  KeyFixture s;
  s.poke_on(1000);
  s.start(kSite, 990);
  s.pt.fup(kSite);
  s.pt.tip(kHandler);
  s.pt.tip(kOn);  // the handler emulates the jump
  s.pt.tip(kEntry);
  stop_at(s, kEntry + 1);
  s.time(1010);
  const Decoded d = s.expect({kHandler, kHandler + 1, kOn, kOn + 1, kEntry});
  expect_all(d, Confidence::kCertain);
}

TEST(LiveText, Int3WindowWhereNothingIsKnownAtTheSite) {
  FlowFixture s;
  s.with_clock();
  // No bytes are known at the site; the block before it runs into it.
  s.code(kSite - 2, {0x90, 0x90}).code(kHandler, {0x90, 0x48, 0xcf}).code(kOn, {0x90, 0x90});
  s.start(kSite - 2, 100);
  s.pt.fup(kSite);
  s.pt.tip(kHandler);
  s.pt.tip(kOn);
  stop_at(s, kOn + 1);
  const Decoded d = s.expect({kSite - 2, kSite - 1, kHandler, kHandler + 1, kOn});
  EXPECT_TRUE(d.gaps.empty());
}

TEST(LiveText, EmulatedCallPushesNothing) {
  FlowFixture s;
  s.with_clock();
  const Addr callee = A + 0x100;
  s.code(kSite, kNop5).code(kSite + 5, {0x90, 0x90}).code(callee, {0x90, 0xc3});
  s.code(kHandler, {0x48, 0xcf});
  s.poke(kSite, kNop5, asof::test::call_bytes(kSite, callee), 1000);
  s.start(kSite, 995);
  s.pt.fup(kSite);
  s.pt.tip(kHandler);
  s.pt.tip(callee);
  s.pt.tip(kSite + 5);  // the RET is not compressed: the processor saw no CALL
  stop_at(s, kSite + 6);
  const Decoded d = s.expect({kHandler, callee, callee + 1, kSite + 5});
  EXPECT_TRUE(d.gaps.empty());
}

TEST(LiveText, CallSiteAfterThePokeIsCompressed) {
  FlowFixture s;
  s.with_clock();
  const Addr callee = A + 0x100;
  s.code(kSite, kNop5).code(kSite + 5, {0x90, 0x90}).code(callee, {0x90, 0xc3});
  s.poke(kSite, kNop5, asof::test::call_bytes(kSite, callee), 1000);
  s.start(kSite, 2000);
  s.pt.tnt(true);
  stop_at(s, kSite + 6);
  expect_all(s.expect({kSite, callee, callee + 1, kSite + 5}), Confidence::kCertain);
}

// Two pokes of different lengths over each other: a probe's INT3, then a jump of five bytes.
TEST(LiveText, OptimisedProbe) {
  FlowFixture s;
  s.with_clock();
  const Bytes original = {0x41, 0x55, 0x48, 0x89, 0xe5};  // PUSH R13; MOV RBP, RSP
  const Addr slot = A + 0x300;
  const Bytes far = asof::test::jmp32_bytes(kSite, slot);
  Bytes armed_tail(far.begin() + 1, far.end());
  s.code(kSite, original).code(kSite + 5, {0x90, 0x90}).code(slot, {0x90, 0xeb, 0x00, 0x90});
  s.code(kHandler, {0x48, 0xcf});
  s.poke(kSite, {0x41}, {0xcc}, 1000);
  s.poke(kSite, {0xcc, 0x55, 0x48, 0x89, 0xe5}, far, 2000);
  const auto visit = [&](uint64_t t, bool armed, bool optimised) {
    s.start(kSite, t);
    if (armed) {
      s.pt.fup(kSite);
      s.pt.tip(kHandler);
      s.pt.tip(kSite + 5);
    }
    stop_at(s, optimised ? slot + 3 : kSite + 6);
    s.pt.tsc(t + 10);
  };
  visit(500, false, false);
  visit(1500, true, false);
  visit(2500, false, true);
  const Decoded d = s.expect({kSite, kSite + 2, kSite + 5, kHandler, kSite + 5, kSite, slot, slot + 1});
  expect_all(d, Confidence::kCertain);
}

}  // namespace
}  // namespace asof::x86::test
