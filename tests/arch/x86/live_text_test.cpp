// Text that changes while the trace runs: the version that the flow takes, and the confidence it reports.
// One unit of time everywhere: TSC ticks, nanoseconds; the clock's error is 0 unless a test sets it.
#include "tests/arch/x86/flow_fixture.h"

namespace asof::x86::test {
namespace {

constexpr Addr A = FlowFixture::kCode;
constexpr Addr kEntry = A + 0x10;  // where most tests start: a few NOPs, then the site
constexpr Addr kSite = A + 0x20;
constexpr Addr kOn = A + 0x80;  // the unlikely part
constexpr Addr kHandler = A + 0x200;

const Bytes kNop5 = asof::test::nop5_bytes();
Bytes jump(Addr from, Addr to) { return asof::test::jmp32_bytes(from, to); }

// A: a static branch as in the kernel. NOP5 falls through to a conditional branch, JMP leads to the
// unlikely part, which ends in an indirect jump: different packets.
//   site: NOP5 | JMP on;  site+5: JE +0;  site+7: NOP;  site+8: JMP RAX
//   on:   NOP; JMP RAX
struct KeyFixture : FlowFixture {
  KeyFixture() {
    with_clock();
    code(kSite, kNop5).code(kSite + 5, {0x74, 0x00, 0x90, 0xff, 0xe0});
    code(kOn, {0x90, 0xff, 0xe0});
    code(kEntry, {0x90, 0x90});  // a start address: NOP, NOP; what follows at 12 is not reached
    code(kHandler, {0x90, 0x48, 0xcf});
  }
  void poke_on(Time t) { poke(kSite, kNop5, jump(kSite, kOn), t); }
  void poke_off(Time t) { poke(kSite, jump(kSite, kOn), kNop5, t); }
  // A visit: tracing starts at the site at `t`; the packets of the path taken, ending with tracing off.
  void visit_off(Time t) {
    start(kSite, static_cast<uint64_t>(t));
    pt.tnt(false);
    pt.tip(kEntry);
    stop_at(*this, kEntry + 1);
  }
  void visit_on(Time t) {
    start(kSite, static_cast<uint64_t>(t));
    pt.tip(kEntry);
    stop_at(*this, kEntry + 1);
  }
  void time(Time t) { pt.tsc(static_cast<uint64_t>(t)); }
};

const std::vector<Addr> kOffPath = {kSite, kSite + 5, kSite + 7, kSite + 8, kEntry};
const std::vector<Addr> kOnPath = {kSite, kOn, kOn + 1, kEntry};

std::vector<Addr> join(std::initializer_list<std::vector<Addr>> parts) {
  std::vector<Addr> out;
  for (const auto& p : parts) out.insert(out.end(), p.begin(), p.end());
  return out;
}

void expect_all(const Decoded& d, Confidence c) {
  for (const Ran& r : d.ran) EXPECT_EQ(r.confidence, c) << fmt::format("{:#x}", r.ip);
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

TEST(LiveText, ClockErrorWidensTheWindow) {
  KeyFixture s;
  s.options.clock_error = 50;
  s.poke_on(1000);
  s.visit_off(970);  // within the error of the poke: two candidates, and the trace decides
  s.time(980);
  const Decoded d = s.expect_flow(kOffPath);
  EXPECT_EQ(d.ran[0].confidence, Confidence::kProved);
}

// ---- INT3 windows ----

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

// ---- position in a block ----

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

// Two pokes of different lengths over each other: a probe's INT3, then a jump of five bytes.
TEST(LiveText, OptimisedProbe) {
  FlowFixture s;
  s.with_clock();
  const Bytes original = {0x41, 0x55, 0x48, 0x89, 0xe5};  // PUSH R13; MOV RBP, RSP
  const Addr slot = A + 0x300;
  const Bytes far = jump(kSite, slot);
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

// ---- timing gaps ----

TEST(LiveText, PokeInsideATimingGapIsProvedByTheTrace) {
  for (const bool on : {false, true}) {
    SCOPED_TRACE(on);
    KeyFixture s;
    s.poke_on(1000);
    // Time is known at 100 and at 5000 only.
    if (on)
      s.visit_on(100);
    else
      s.visit_off(100);
    s.time(5000);
    const Decoded d = s.expect_flow(on ? kOnPath : kOffPath);
    EXPECT_EQ(d.ran[0].confidence, Confidence::kProved);
    EXPECT_EQ(d.ran[0].bytes[0], on ? 0xe9 : 0x0f);
  }
}

// Many visits between two timestamps: first of the old version, then of the new one.
TEST(LiveText, TheChangeIsFoundAmongManyVisits) {
  for (int change = 0; change <= 20; ++change) {
    SCOPED_TRACE(change);
    KeyFixture s;
    s.code(kEntry + 2, {0xff, 0xe0});
    s.poke_on(1000);
    s.start(kSite, 100);
    std::vector<Addr> want;
    for (int i = 0; i < 20; ++i) {
      if (i < change) {
        s.pt.tnt(false);
        s.pt.tip(kEntry);
        want.insert(want.end(), kOffPath.begin(), kOffPath.end());
      } else {
        s.pt.tip(kEntry);
        want.insert(want.end(), kOnPath.begin(), kOnPath.end());
      }
      s.pt.tip(kSite);
      want.insert(want.end(), {kEntry + 1, kEntry + 2});
    }
    stop_at(s, kSite);
    s.time(5000);
    const Decoded d = s.expect_flow(want);
    EXPECT_TRUE(d.gaps.empty());
    for (const Ran& r : d.ran) {
      if (r.ip == kSite) {
        EXPECT_TRUE(r.confidence == Confidence::kProved || r.confidence == Confidence::kCertain);
      }
    }
  }
}

// NOP5 against a jump to the next instruction: both paths are the same.
TEST(LiveText, EquivalentVersions) {
  FlowFixture s;
  s.with_clock();
  s.code(kSite, kNop5).code(kSite + 5, {0x90, 0x74, 0x00, 0x90, 0x74, 0x00, 0x90, 0x90});
  s.poke(kSite, kNop5, {0xe9, 0, 0, 0, 0}, 1000);
  s.start(kSite, 100);
  s.pt.tnt(true);
  s.pt.tnt(false);
  stop_at(s, kSite + 12);
  s.pt.tsc(5000);
  const Decoded d = s.expect({kSite, kSite + 5, kSite + 6, kSite + 8, kSite + 9, kSite + 11});
  EXPECT_EQ(d.ran[0].confidence, Confidence::kEquivalent);
  EXPECT_EQ(d.ran.back().confidence, Confidence::kCertain);
  EXPECT_TRUE(d.gaps.empty());
}

TEST(LiveText, AmbiguousWhereTheTraceEndsTooSoon) {
  KeyFixture s;
  // Two versions that both need a bit, and the trace ends after it.
  const Addr site = A + 0x400;
  s.code(site, {0x74, 0x00}).code(site + 2, {0x90, 0x74, 0x00}).code(A + 0x410, {0x90, 0x74, 0x00});
  s.poke(site, {0x74, 0x00}, {0x74, 0x0e}, 1000);
  s.start(site, 100);
  s.pt.tnt(true);
  s.pt.tsc(5000);
  const Decoded d = s.decode_all_ways();
  ASSERT_FALSE(d.ran.empty());
  EXPECT_EQ(d.ran[0].ip, site);
  EXPECT_EQ(d.ran[0].confidence, Confidence::kAmbiguous);
}

TEST(LiveText, NoVersionFits) {
  KeyFixture s;
  s.poke_on(1000);
  s.start(kSite, 100);
  s.pt.tnt(true);          // on: the JMP RAX needs an address
  s.pt.fup(kSite + 0x40);  // off: so does this one, and the FUP is at no address on the path
  s.pt.tip(kEntry);
  stop_at(s, kEntry + 1);
  s.time(5000);
  const Decoded d = s.decode_all_ways();
  ASSERT_GE(d.gaps.size(), 1U);
  EXPECT_EQ(family_of(d.gaps[0].code), CodeFamily::kFlow);
  for (const Ran& r : d.ran) {
    if (r.ip == kSite) {
      EXPECT_EQ(r.confidence, Confidence::kContradiction);
    }
  }
  EXPECT_EQ(d.ran.back().ip, kEntry);
}

// The bytes of one version are unknown. That the known one fits proves nothing.
TEST(LiveText, UnknownVersionIsACandidateToo) {
  FlowFixture s;
  s.with_clock();
  s.code(kSite, {0x90, 0x90, 0x90}, kTimeMin, 999).unknown(kSite, 3, 1000, kTimeMax);
  s.start(kSite, 100);
  stop_at(s, kSite + 2);
  s.pt.tsc(5000);
  const Decoded d = s.decode_all_ways();
  EXPECT_EQ(hex(d.ips()), hex({kSite, kSite + 1}));
  for (const Ran& r : d.ran) EXPECT_EQ(r.confidence, Confidence::kAmbiguous);
}

// No layer covers the time before a program was loaded: something that no record shows may have run there.
// The flow goes through the program, but it is not certain.
TEST(LiveText, TimeBeforeTheFirstLifetimeIsUnknown) {
  FlowFixture s;
  s.with_clock();
  s.code(kSite, {0x90, 0x90, 0x90}, 1000);
  s.start(kSite, 100);
  stop_at(s, kSite + 2);
  s.pt.tsc(5000);
  expect_all(s.expect_flow({kSite, kSite + 1}), Confidence::kAmbiguous);
}

TEST(LiveText, NoBytesAtThisTimeThoughAtOthers) {
  FlowFixture s;
  s.with_clock();
  s.code(kSite, {0x90, 0x90, 0x90}, kTimeMin, 999).code(kOn, {0x90, 0x90});
  s.start(kSite, 2000);
  s.pt.tip(kOn);
  stop_at(s, kOn + 1);
  s.pt.tsc(2100);
  const Decoded d = s.expect_flow({kOn});
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_EQ(d.gaps[0].code, Code::kNoBytes);
}

// ---- programs that come and go ----

TEST(LiveText, ReusedProgramAddress) {
  FlowFixture s;
  s.with_clock();
  const Addr prog = 0xffffffffc0001000;
  // The first program falls through its branch, the second has a different length and shape.
  s.code(prog, {0x90, 0x74, 0x00, 0x90, 0x90}, 1000, 3000, true, kRankEpoch);
  s.code(prog, {0x48, 0x89, 0xc8, 0x75, 0x01, 0x90, 0x90, 0x90}, 4000, kTimeMax, false, kRankEpoch);
  s.start(prog, 2000);
  s.pt.tnt(false);
  stop_at(s, prog + 4);
  s.pt.tsc(2100);
  s.start(prog, 5000);
  s.pt.tnt(true);
  stop_at(s, prog + 7);
  s.pt.tsc(5100);
  const Decoded d = s.expect({prog, prog + 1, prog + 3, prog, prog + 3, prog + 6});
  expect_all(d, Confidence::kCertain);
  EXPECT_EQ(d.ran[0].length, 1);
  EXPECT_EQ(d.ran[3].length, 3);
}

// After the unload record the old program may run a little longer, until another is announced there.
TEST(LiveText, UnloadedProgramStillRuns) {
  FlowFixture s;
  s.with_clock();
  const Addr prog = 0xffffffffc0001000;
  s.code(prog, {0x90, 0x74, 0x00, 0x90, 0x90}, 1000, 3000, true, kRankEpoch);
  s.start(prog, 3500);
  s.pt.tnt(false);
  stop_at(s, prog + 4);
  s.pt.tsc(3600);
  const Decoded d = s.decode_all_ways();
  EXPECT_EQ(hex(d.ips()), hex({prog, prog + 1, prog + 3}));
  EXPECT_TRUE(d.gaps.empty());
}

// Both lifetimes are possible, the trace decides.
TEST(LiveText, ProgramsWithinATimingGap) {
  FlowFixture s;
  s.with_clock();
  const Addr prog = 0xffffffffc0001000;
  s.code(prog, {0x90, 0x74, 0x00, 0x90, 0x90}, 1000, 3000, false, kRankEpoch);
  s.code(prog, {0x48, 0x89, 0xc8, 0xff, 0xe0}, 3001, kTimeMax, false, kRankEpoch);
  s.code(kOn, {0x90, 0x90});
  s.start(prog, 2000);
  s.pt.tip(kOn);
  stop_at(s, kOn + 1);
  s.pt.tsc(5000);
  const Decoded d = s.expect_flow({prog, prog + 3, kOn});
  EXPECT_EQ(d.ran[0].confidence, Confidence::kProved);
}

// ---- one state of the text, as in other tools ----

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
  for (const Ran& r : first.ran) {
    if (r.ip == kSite) {
      EXPECT_EQ(r.bytes[0], 0x0f);
    }
  }
  s.options.text_at = TextAt::kLast;
  const Decoded last = s.decode();
  EXPECT_FALSE(last.gaps.empty());
  for (const Ran& r : last.ran) {
    if (r.ip == kSite) {
      EXPECT_EQ(r.bytes[0], 0xe9);
    }
  }
}

// Without any time all versions are candidates, and only the trace decides; what it cannot decide is not
// certain.
TEST(LiveText, TraceWithoutTime) {
  for (const bool on : {false, true}) {
    KeyFixture s;
    s.config.time.reset();
    s.poke_on(1000);
    s.start(kSite);
    if (!on) s.pt.tnt(false);
    s.pt.tip(kEntry);
    stop_at(s, kEntry + 1);
    const Decoded d = s.expect_flow(on ? kOnPath : kOffPath);
    EXPECT_EQ(d.ran[0].confidence, Confidence::kProved);
  }
}

// The stream's own bounds (AUX records) replace time in the trace.
TEST(LiveText, BoundsOfTheStreamServeWhereTheTraceHasNoTime) {
  KeyFixture s;
  s.config.time.reset();
  s.poke_on(1000);
  s.stream.bounds = {2000, 3000};
  s.start(kSite);
  s.pt.tip(kEntry);
  stop_at(s, kEntry + 1);
  const Decoded d = s.decode_all_ways();
  EXPECT_EQ(hex(d.ips()), hex(kOnPath));
  expect_all(d, Confidence::kCertain);
}

}  // namespace
}  // namespace asof::x86::test
