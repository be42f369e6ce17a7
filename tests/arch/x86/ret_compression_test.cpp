// Returns with a TIP: all of them where the trace was recorded without return compression
// (Config::no_ret_compression), else those that go elsewhere than to their call (state.h, Returns).
#include <algorithm>
#include <iterator>

#include "tests/arch/x86/flow_fixture.h"

namespace asof::x86::test {
namespace {

constexpr unsigned kTurns = 400;

// 0: CALL 20; 5: JE 0; 7: NOP; 8: NOP; 20: JE 23; 22: NOP; 23: RET. Every return has a TIP. Before some packets are up to
// `pads` PAD packets.
struct CallingLoop : FlowFixture {
  explicit CallingLoop(unsigned pads = 0) {
    auto pad = [this, pads, next = 0U]() mutable {
      for (unsigned n = next++ % (pads + 1); n != 0; --n) pt.pad();
    };
    code(A, {0xe8, 0x1b, 0, 0, 0, 0x74, 0xf9, 0x90, 0x90});
    code(A + 0x20, {0x74, 0x01, 0x90, 0xc3});
    start(A);
    for (unsigned i = 0; i < kTurns; ++i) {
      const bool taken = i % 3 == 1;
      pt.tnt(taken);
      pad();
      pt.tip(A + 5);
      pad();
      pt.tnt(i + 1 < kTurns);
      for (const Addr a : {0, 0x20, 0x22, 0x23, 5})
        if (a != 0x22 || !taken) ran.push_back(A + a);
    }
    pt.fup(A + 8);
    pt.tip_pgd();
    ran.push_back(A + 7);
  }
  std::vector<Addr> ran;
};

TEST(NoRetCompression, ReturnsAreIndirectBranches) {
  CallingLoop s;
  s.config.no_ret_compression = true;
  const Decoded d = s.expect(s.ran);
  EXPECT_GT(d.in_runs, s.ran.size() * 9 / 10) << "the fast walk goes over returns, too";
}

// Recorders put PAD packets between others, to align them.
TEST(NoRetCompression, PadPacketsBetweenPathsAreNoHindrance) {
  for (const bool said : {true, false}) {
    CallingLoop s(10);
    s.config.no_ret_compression = said;
    const Decoded d = s.expect(s.ran);
    if (said) {
      EXPECT_GT(d.in_runs, s.ran.size() * 9 / 10);
    }
  }
}

// Where the capture does not say it, the same is found by the careful walk.
TEST(NoRetCompression, NeedNotBeSaid) { CallingLoop().expect(CallingLoop().ran); }

// The trace has a compressed return all the same: what it says of itself is not true.
TEST(NoRetCompression, CompressedReturnIsAContradiction) {
  CallingLoop s;
  s.config.no_ret_compression = true;
  s.pt.psb_plus({});
  s.pt.tip_pge(A, IpForm::kSext48);
  s.pt.tnt(true);
  s.pt.tnt(true);  // of the RET at 23
  s.pt.tip(A + 7);
  s.pt.fup(A + 8);
  s.pt.tip_pgd();
  const Decoded d = s.decode_all_ways();
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_EQ(d.gaps[0].code, Code::kReturnWithoutItsCall);
  EXPECT_NE(d.gaps[0].reason.find("recorded without such returns"), std::string::npos) << d.gaps[0].reason;
  EXPECT_EQ(d.gaps[0].resume_ip, A + 7);
}

// Where the hardware keeps its entry at a return that goes elsewhere, the next compressed return takes it.
TEST(UncompressedReturns, OfHardwareThatKeepsEntriesAreFollowedFast) {
  FlowFixture s;
  s.code(A, {0xe8, 0x1b, 0, 0, 0, 0x74, 0xf9, 0x90, 0x90});                    // CALL 20; JE 0; NOP; NOP
  s.code(A + 0x20, {0x74, 0x01, 0x90, 0xc3}).code(A + 0x40, {0xc3}).start(A);  // JE 23; NOP; RET - RET
  std::vector<Addr> ran;
  for (unsigned i = 0; i < kTurns; ++i) {
    const bool taken = i % 3 == 1;
    s.pt.tnt(taken);
    s.pt.tip(A + 0x40);
    bits(s, {1, i + 1 < kTurns ? 1 : 0});
    for (const Addr a : {0, 0x20, 0x22, 0x23, 0x40, 5})
      if (a != 0x22 || !taken) ran.push_back(A + a);
  }
  stop_at(s, A + 8);
  ran.push_back(A + 7);
  const Decoded d = s.expect(ran);
  EXPECT_GT(d.in_runs, ran.size() * 9 / 10);
}

// Retpolines, on hardware that takes its entry off.
TEST(UncompressedReturns, OfRetpolinesAreFollowedFast) {
  FlowFixture s;
  s.code(A, {0xe8, 0x3b, 0, 0, 0, 0x74, 0xf9, 0x90, 0x90});   // CALL 40; JE 0; NOP; NOP
  s.code(A + 0x40, {0xe8, 0x1b, 0, 0, 0, 0xc3});              // CALL 60; RET
  s.code(A + 0x60, {0xe8, 0x01, 0, 0, 0, 0x90, 0x90, 0xc3});  // CALL 66; NOP; NOP (sets the target); RET
  s.code(A + 0x80, {0x74, 0x01, 0x90, 0xc3}).start(A);        // JE 83; NOP; RET
  std::vector<Addr> ran;
  for (unsigned i = 0; i < kTurns; ++i) {
    const bool taken = i % 3 == 1;
    s.pt.tip(A + 0x80);
    bits(s, {taken ? 1 : 0, 1, 1, i + 1 < kTurns ? 1 : 0});
    for (const Addr a : {0, 0x40, 0x60, 0x66, 0x67, 0x80, 0x82, 0x83, 0x45, 5})
      if (a != 0x82 || !taken) ran.push_back(A + a);
  }
  stop_at(s, A + 8);
  ran.push_back(A + 7);
  const Decoded d = s.expect_flow(ran);
  EXPECT_GT(d.in_runs, ran.size() * 9 / 10);
}

// longjmp() leaves entries on the hardware's stack that nothing returns to, here more than it has room for.
TEST(UncompressedReturns, BesideCallsThatAreLeftByAJump) {
  for (const bool compressed : {true, false}) {
    FlowFixture s;
    s.config.no_ret_compression = !compressed;
    s.code(A, {0xe8, 0x1b, 0, 0, 0, 0xe8, 0x56, 0, 0, 0, 0x74, 0xf4, 0x90, 0x90});  // CALL 20; CALL 60; JE 0
    s.code(A + 0x20, {0xe8, 0x1b, 0, 0, 0});                                        // CALL 40
    s.code(A + 0x40, {0xff, 0xe0}).code(A + 0x60, {0xc3}).start(A);                 // JMP RAX - RET
    std::vector<Addr> ran;
    for (unsigned i = 0; i < kTurns; ++i) {
      s.pt.tip(A + 5);
      if (compressed)
        s.pt.tnt(true);
      else
        s.pt.tip(A + 0xa);
      s.pt.tnt(i + 1 < kTurns);
      for (const Addr a : {0, 0x20, 0x40, 5, 0x60, 0xa}) ran.push_back(A + a);
    }
    stop_at(s, A + 0xd);
    ran.push_back(A + 0xc);
    const Decoded d = s.expect(ran);
    EXPECT_GT(d.in_runs, ran.size() * 9 / 10);
  }
}

}  // namespace
}  // namespace asof::x86::test
