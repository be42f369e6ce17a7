// Power events, event trace, time and overflow.
#include <intel-pt.h>

#include "tests/tools/board/pt_plugin/pt_fixture.h"

namespace asof::pt::test {
namespace {

class PtEvents : public PtFixture {};
class PtOverflow : public PtFixture {
 protected:
  PtOverflow() : PtFixture({.buffer_bytes = 96, .drain = 100}) {}
};

TEST_F(PtEvents, HltAndWake) {
  decoder.code(kCode, {0x90, 0xf4, 0x90});
  enable(kBoth | kPwrEvtEn | kTscEn, kCode);
  const uint64_t start = unit.written();
  plain({kCode, kCode + 1});
  unit.sleep(Sleep::kHlt, kCode + 1, 0, 0, tsc);
  EXPECT_EQ(packets_after(start), "pwre exstop fup:1");
  tsc += 1000;
  unit.wake(tsc);
  EXPECT_EQ(packets_after(start), "pwre exstop fup:1 tsc cbr pwrx");
  plain({kCode + 2});
  disable(kCode + 3);
  const auto d = expect_both();
  EXPECT_EQ(d.of(EventKind::kExstop).at(0).ip, kCode + 1);
  EXPECT_EQ(d.of(EventKind::kPwrx).at(0).b >> 8, 1U);
}

TEST_F(PtEvents, MwaitOutsideOfTheContext) {
  enable(kBoth | kPwrEvtEn, kCode);
  const uint64_t start = unit.written();
  unit.sleep(Sleep::kMwait, kCode, 0x20, 1, tsc);
  unit.wake(tsc);
  EXPECT_EQ(packets_after(start), "mwait pwre exstop fup:0 cbr pwrx");
  disable(kCode);
  enable(kUser | kBranchEn | kPwrEvtEn, kCode);
  const uint64_t other = unit.written();
  unit.sleep(Sleep::kMwait, kCode, 0x20, 1, tsc);
  EXPECT_EQ(packets_after(other), "pwre exstop");
}

// libipt 2.0 does not know these packets, 2.1 does.
TEST_F(PtEvents, EventTrace) {
  decoder.code(kUserCode, x86::test::Bytes(16, 0x90)).code(kCode, {0x90, 0xfb, 0x90, 0x48, 0xcf});
  Place handler = kernel(kCode);
  handler.interrupts = false;
  enable(kBoth | kEventEn, kUserCode);
  const uint64_t start = unit.written();
  plain({kUserCode});
  unit.interrupt({kUserCode + 1, 14, 0x7000}, handler, tsc);
  plain({kCode, kCode + 1});
  unit.interrupt_flag(kernel(kCode + 2), tsc);  // STI
  unit.interrupt_flag(kernel(kCode + 2), tsc);  // no change
  plain({kCode + 2});
  branch(Flow::kIret, kCode + 3, 2, kUserCode + 1);
  plain({kUserCode + 1});
  disable(kUserCode + 2);
  EXPECT_EQ(packets_after(start),
            "evd cfe fup:1001 mode:1 tip:0 mode:5 fup:2 cfe fup:3 tip:1001 fup:1002 pgd");
  const pt_version libipt = pt_library_version();
  const auto d = libipt.major > 2 || libipt.minor > 0 ? expect_both() : expect_asof();
  ASSERT_EQ(d.of(EventKind::kCfe).size(), 2U);
  EXPECT_EQ(d.of(EventKind::kCfe)[0].b, 14U);
  EXPECT_EQ(d.of(EventKind::kEvd).at(0).b, 0x7000U);
}

// Of a part of the contexts: libipt's tests ptet-int-iret-cpl_0 and ptet-int-iret-cpl_3 have the same packets.
TEST_F(PtEvents, EventTraceOfOnePrivilegeLevel) {
  Place handler = kernel(kCode);
  handler.interrupts = false;
  const auto fault_and_return = [&](uint64_t level) {
    enable(level | kBranchEn | kEventEn, kUserCode);
    const uint64_t start = unit.written();
    plain({kUserCode});
    unit.interrupt({kUserCode + 1, 14, 0x7000}, handler, tsc);
    plain({kCode});
    branch(Flow::kIret, kCode + 1, 2, kUserCode + 1);
    plain({kUserCode + 1});
    const std::string packets = packets_after(start);
    disable(kUserCode + 2);
    return packets;
  };
  EXPECT_EQ(fault_and_return(kOs), "evd cfe mode:1 pge:0 cfe fup:1 pgd");
  EXPECT_EQ(fault_and_return(kUser), "evd cfe fup:1001 pgd cfe pge:1001");
}

// MTC tells when the crystal's counter changed, even if nothing else happened; it follows older outcomes.
TEST_F(PtEvents, Mtc) {
  enable(kBoth | kMtcEn | kTscEn | uint64_t{3} << 14, kCode);  // every 8 ticks of 41.67
  const uint64_t start = unit.written(), first = (tsc * 3 / 125 >> 3) + 1;
  branch(Flow::kCond, kCode, 2, kCode + 2);
  tsc += 700;
  branch(Flow::kCond, kCode, 2, kCode);
  disable(kCode);
  EXPECT_EQ(packets_after(start),
            fmt::format("tnt:0 mtc:{} mtc:{} tnt:1 fup:0 pgd", first & 255, (first + 1) & 255));
}

// The CYC before a TNT has the time of its first outcome.
TEST_F(PtEvents, Cyc) {
  enable(kBoth | kCycEn, kCode);
  const uint64_t start = unit.written();
  tsc += 9;
  branch(Flow::kCond, kCode, 2, kCode);  // at 10
  tsc += 20;
  branch(Flow::kCond, kCode, 2, kCode);
  tsc += 200;
  branch(Flow::kJumpIndirect, kCode, 2, kCode);  // at 232
  EXPECT_EQ(packets_after(start), "cyc:10 tnt:11 cyc:222 tip:0");
}

TEST_F(PtEvents, CycThreshold) {
  enable(kBoth | kCycEn | uint64_t{5} << 19, kCode);  // 16 cycles
  const uint64_t start = unit.written();
  for (int i = 0; i < 4; ++i) {
    tsc += 6;  // 7 with the branch
    branch(Flow::kJumpIndirect, kCode, 2, kCode);
  }
  EXPECT_EQ(packets_after(start), "tip:0 tip:0 cyc:21 tip:0 tip:0");
}

// Cycles are not counted while the clock stands.
TEST_F(PtEvents, CycDuringSleep) {
  enable(kBoth | kCycEn, kCode);
  const uint64_t start = unit.written();
  tsc += 5;
  unit.sleep(Sleep::kHlt, kCode, 0, 0, tsc);
  tsc += 100'000;
  unit.wake(tsc);
  tsc += 2;
  branch(Flow::kJumpIndirect, kCode, 2, kCode);
  EXPECT_EQ(packets_after(start), "cyc:5 cbr cyc:3 tip:0");
}

// Lost outcomes, OVF, and FUP where tracing resumes; calls from before are not matched.
TEST_F(PtOverflow, ResumesWithFup) {
  decoder.code(kCode, {0xff, 0xe0, 0x75, 0xfc, 0xc3});
  decoder.options.clock_error = 0;
  enable(kBoth, kCode);
  while (!unit.losing()) {
    branch(Flow::kJumpIndirect, kCode, 2, kCode);
    ASSERT_LT(ran.size(), 100U);
  }
  ran.pop_back();  // an interruption before it might be among what was lost: no decoder shows it
  for (int i = 0; i < 10; ++i) branch(Flow::kJumpIndirect, kCode, 2, kCode);
  EXPECT_TRUE(unit.losing());
  tsc += 10'000;
  unit.boundary(kernel(kCode + 2), tsc);
  EXPECT_FALSE(unit.losing());
  const uint64_t at = unit.written();
  branch(Flow::kCond, kCode + 2, 2, kCode);
  branch(Flow::kJumpIndirect, kCode, 2, kCode + 4);
  disable(kCode + 4);
  EXPECT_EQ(packets_after(at), "tnt:1 tip:4 fup:4 pgd");
  EXPECT_NE(packets().find(" ovf fup:2 tnt:1"), std::string::npos) << packets();
  EXPECT_EQ(unit.overflows(), 1U);
  decoder.pt.raw(trace());
  const auto d = decoder.decode();
  EXPECT_EQ(d.of(EventKind::kOverflow).size(), 1U);
  EXPECT_EQ(x86::test::hex(d.ips()), x86::test::hex(ran));
  EXPECT_EQ(x86::test::hex(decoder.decode_by_reference().ips()), x86::test::hex(ran));
}

// Resolved while PacketEn is clear: no FUP; a PIP that was lost is repeated in PSB+.
TEST_F(PtOverflow, OutsideOfTheContext) {
  enable(kUser | kBranchEn | kTscEn, kUserCode);
  while (!unit.losing()) branch(Flow::kJumpIndirect, kUserCode, 2, kUserCode);
  unit.interrupt({kUserCode, {}, {}}, kernel(kCode), tsc);
  tsc += 10'000;
  unit.boundary(kernel(kCode), tsc);
  const uint64_t at = unit.written();
  EXPECT_EQ(packets_after(at - 2), "ovf");
  branch(Flow::kIret, kCode, 2, kUserCode);
  EXPECT_EQ(packets_after(at), "pge:1000");
}

}  // namespace
}  // namespace asof::pt::test
