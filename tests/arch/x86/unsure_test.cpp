// The extent of a doubt: what follows text that may have changed unseen, what ends it, and which of several
// lifetimes at one address the flow is in (docs/live-text.md 7.1, 7.3).
#include "tests/arch/x86/flow_fixture.h"

namespace asof::x86::test {
namespace {

constexpr Addr kKernel = FlowFixture::kCode;
constexpr Addr kModule = 0xffffffffc0100000;
constexpr Addr kProgram = 0xffffffffc0600000;

struct Visit {
  Addr ip;
  Confidence confidence;
  bool operator==(const Visit&) const = default;
};
void PrintTo(const Visit& p, std::ostream* out) {
  *out << fmt::format("{:#x} {}", p.ip, static_cast<int>(p.confidence));
}

std::vector<Visit> visits(const Decoded& d) {
  std::vector<Visit> out;
  for (const Ran& r : d.ran) out.push_back({r.ip, r.confidence});
  return out;
}

constexpr auto kSure = Confidence::kCertain, kDoubt = Confidence::kAmbiguous;

// The kernel calls a function of a module, which calls back and returns.
struct ModuleFixture : FlowFixture {
  ModuleFixture() {
    with_clock();
    Bytes kernel = {0x90};  // +0
    const Bytes to_module = asof::test::call_bytes(kKernel + 1, kModule);
    kernel.insert(kernel.end(), to_module.begin(), to_module.end());  // +1: CALL
    kernel.insert(kernel.end(), {0x90, 0xff, 0xe0});                  // +6: NOP, JMP RAX
    kernel.resize(0x20, 0xcc);
    kernel.insert(kernel.end(), {0x90, 0xff, 0xe0});  // +0x20: NOP, JMP RAX
    code(kKernel, kernel);
    unsure_code(kModule, {0x90, 0xc3});  // NOP, RET
  }
};

TEST(Unsure, WhatFollowsUnsureTextIsInDoubtUpToTheNextAddress) {
  ModuleFixture s;
  s.start(kKernel, 100);
  s.pt.tnt(true);            // the compressed return
  s.pt.tip(kKernel + 0x20);  // JMP RAX
  stop_at(s, kKernel + 0x21);
  s.pt.tsc(200);
  EXPECT_EQ(visits(s.expect_flow(
                {kKernel, kKernel + 1, kModule, kModule + 1, kKernel + 6, kKernel + 7, kKernel + 0x20})),
            (std::vector<Visit>{{kKernel, kSure},
                                {kKernel + 1, kSure},
                                {kModule, kDoubt},
                                {kModule + 1, kDoubt},
                                {kKernel + 6, kDoubt},
                                {kKernel + 7, kDoubt},
                                {kKernel + 0x20, kSure}}));
}

TEST(Unsure, AReturnToACallFromBeforeTheDoubtIsInDoubt) {
  ModuleFixture s;
  // +0x40: CALL kernel; NOP; JMP RAX. The callee's JMP RAX goes to a RET.
  Bytes outer = asof::test::call_bytes(kKernel + 0x40, kKernel);
  outer.insert(outer.end(), {0x90, 0xff, 0xe0});
  s.code(kKernel + 0x40, outer);
  s.code(kKernel + 0x60, {0x90, 0xc3});
  s.start(kKernel + 0x40, 100);
  s.pt.tnt(true);
  s.pt.tip(kKernel + 0x60);
  s.pt.tnt(true);  // the RET at +0x61, to a call that was made before
  s.pt.tip(kKernel + 0x20);
  stop_at(s, kKernel + 0x21);
  s.pt.tsc(200);
  const auto got = visits(
      s.expect_flow({kKernel + 0x40, kKernel, kKernel + 1, kModule, kModule + 1, kKernel + 6, kKernel + 7,
                     kKernel + 0x60, kKernel + 0x61, kKernel + 0x45, kKernel + 0x46, kKernel + 0x20}));
  // The block of the return, too: an interrupt may come before anything runs at its target.
  EXPECT_EQ(got[7], (Visit{kKernel + 0x60, kDoubt}));
  EXPECT_EQ(got[8], (Visit{kKernel + 0x61, kDoubt}));
  EXPECT_EQ(got[9], (Visit{kKernel + 0x45, kDoubt}));
  EXPECT_EQ(got[10], (Visit{kKernel + 0x46, kDoubt}));
  EXPECT_EQ(got[11], (Visit{kKernel + 0x20, kSure}));
}

// One program ended at 1000; another, whose bytes lie across its end, began at 2000; the time bounds are 900
// and 2100. What follows the first bytes of the second program belongs to the second program.
TEST(Unsure, TheFlowStaysInTheLifetimeOfAProgram) {
  FlowFixture s;
  s.with_clock();
  s.program(kProgram + 0x10, {0x75, 0x00, 0x75, 0x00, 0xff, 0xe0}, 1, kTimeMin, 1000);
  Bytes second(0x10, 0x90);
  second.insert(second.end(), {0x90, 0x90, 0x90, 0x90, 0xff, 0xe0});
  s.program(kProgram, second, 2, 2000, kTimeMax);
  s.code(kKernel, {0x90, 0x90});
  s.start(kProgram, 900);
  s.pt.tip(kKernel);
  stop_at(s, kKernel + 1);
  s.pt.tsc(2100);
  std::vector<Addr> ran;
  for (Addr a = kProgram; a <= kProgram + 0x14; ++a) ran.push_back(a);
  ran.push_back(kKernel);
  const Decoded d = s.expect_flow(ran);
  EXPECT_EQ(d.ran[0x10].bytes[0], 0x90);
}

// 70 versions of a jump are possible; the trace contradicts all except the fourth and the last, which ran.
// Fewer are followed than there are, so it proves nothing that one of those fits.
TEST(Unsure, OneOfMoreVersionsThanAreFollowedIsNotProved) {
  constexpr int kVersions = 70;
  FlowFixture s;
  s.with_clock();
  for (int i = 0; i < kVersions; ++i) {
    const Addr target = kKernel + 0x100 + 0x10 * static_cast<Addr>(i);
    s.code(kKernel, asof::test::jmp32_bytes(kKernel, target), i == 0 ? kTimeMin : 1000 + 10 * i,
           i + 1 == kVersions ? kTimeMax : 1009 + 10 * i);
    s.code(target, i == 3 || i + 1 == kVersions ? Bytes{0xff, 0xe0} : Bytes{0x75, 0x00});
  }
  s.code(kKernel + 0x20, {0x90, 0x90});
  s.start(kKernel, 100);
  s.pt.tip(kKernel + 0x20);
  stop_at(s, kKernel + 0x21);
  s.pt.tsc(2000);
  EXPECT_EQ(visits(s.decode()).at(0), (Visit{kKernel, kDoubt}));
}

// The condition was changed at 1000, the distance at 500: the new condition and the old distance were never
// there together.
TEST(Unsure, BytesOfAnInstructionAreOfOneTime) {
  FlowFixture s;
  s.with_clock();
  s.code(kKernel, {0x74}, kTimeMin, 999).code(kKernel, {0x75}, 1000);
  s.code(kKernel + 1, {0x00}, kTimeMin, 499).code(kKernel + 1, {0x10}, 500);
  s.code(kKernel + 2, {0xff, 0xe0}).code(kKernel + 0x12, {0x75, 0x00});
  s.code(kKernel + 0x20, {0x90, 0x90});
  s.start(kKernel, 100);
  s.pt.tnt(true);
  s.pt.tip(kKernel + 0x20);
  stop_at(s, kKernel + 0x21);
  s.pt.tsc(2000);
  const Decoded d = s.expect_flow({kKernel, kKernel + 2, kKernel + 0x20});
  EXPECT_EQ(visits(d).at(0), (Visit{kKernel, Confidence::kProved}));
  EXPECT_EQ(d.ran[0].bytes[0], 0x74);
}
// One process has two texts at the address, one of which fits; the text of the other process that may run is
// unknown.
TEST(Unsure, TextOfAProcessIsNotProvedWhereAnotherWithoutTextMayRun) {
  FlowFixture s;
  s.with_clock();
  s.code(FlowFixture::kUserCode, {0x75, 0x00}, kTimeMin, 999)
      .code(FlowFixture::kUserCode, {0xff, 0xe0}, 1000);
  s.code(kKernel, {0x90, 0x90});
  s.stream.contexts = {{kTimeMin, 1, 1, s.user()}, {1500, 2, 2, s.add_space()}};
  s.start(FlowFixture::kUserCode, 100);
  s.pt.tip(kKernel);
  stop_at(s, kKernel + 1);
  s.pt.tsc(2000);
  EXPECT_EQ(visits(s.expect_flow({FlowFixture::kUserCode, kKernel})).at(0),
            (Visit{FlowFixture::kUserCode, kDoubt}));
}

}  // namespace
}  // namespace asof::x86::test
