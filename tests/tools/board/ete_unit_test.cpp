// The trace unit and the trace buffer that tools/board/ete_plugin gives an emulated CPU.
#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "tools/board/ete_plugin/follower.h"

namespace asof::ete {
namespace {

constexpr uint64_t kUserOnly = 1 | 1 << 9 | 1 << 21;  // TRCVICTLR: always, EXLEVEL_NS EL1 excluded
constexpr uint64_t kBuffer = 0xffff'8000'0000'0000;
constexpr std::array<uint8_t, 12> kAsync{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80};

class EteUnit : public ::testing::Test {
 protected:
  EteUnit()
      : unit_(
            registers_,
            [this](std::span<const uint8_t> b) {
              bytes_.insert(bytes_.end(), b.begin(), b.end());
              return accept_ && bytes_.size() < fills_at_;
            },
            [this](uint64_t elements, bool lost) { (lost ? lost_ : told_) = elements; },
            [this] { ++syncs_; }) {
    registers_.write(Register::kTrfcr, 3);
    registers_.write(Register::kViewInst, kUserOnly);
  }
  std::vector<uint8_t> rest() const { return {bytes_.begin() + kStart, bytes_.end()}; }

  static constexpr size_t kStart = 12 + 3 + 1 + 10;  // A-Sync, Trace Info, Trace On, address with context
  Registers registers_;
  std::vector<uint8_t> bytes_;
  unsigned syncs_ = 0;
  bool accept_ = true;
  size_t fills_at_ = SIZE_MAX;    // from this size on nothing is accepted
  uint64_t told_ = 0, lost_ = 0;  // P0 elements, as of the last packets that were accepted, and that were not
  TraceUnit unit_;
};

TEST_F(EteUnit, BeginsWithSynchronization) {
  unit_.enable();
  unit_.stand(0x400000, {});
  unit_.flush();
  ASSERT_EQ(bytes_.size(), kStart);
  EXPECT_TRUE(std::equal(kAsync.begin(), kAsync.end(), bytes_.begin()));
  EXPECT_EQ(bytes_[12], 0x01);  // Trace Info
  EXPECT_EQ(bytes_[15], 0x04);  // Trace On
  EXPECT_EQ(bytes_[16], 0x85);  // 64-bit address with context
  EXPECT_EQ(syncs_, 1U);
}

TEST_F(EteUnit, WritesAtomsAndTargets) {
  unit_.enable();
  unit_.stand(0x400000, {});
  unit_.retire(Kind::kConditional, 0x400000, 0x400004, 1, {});
  unit_.retire(Kind::kDirect, 0x400004, 0x400100, 2, {});
  unit_.retire(Kind::kIndirect, 0x400100, 0x400200, 3, {});
  unit_.flush();
  // N, E, E as one packet of format 3; then the low bits of the target.
  EXPECT_EQ(rest(), (std::vector<uint8_t>{0xfe, 0x95, 0x80, 0x01}));
  EXPECT_EQ(unit_.made(), 3U);
  EXPECT_EQ(told_, 3U);
}

TEST_F(EteUnit, ReturnStackReplacesTheTarget) {
  registers_.write(Register::kConfig, 1 << 12);
  unit_.enable();
  unit_.stand(0x400000, {});
  unit_.retire(Kind::kCall, 0x400000, 0x400100, 1, {});
  unit_.retire(Kind::kReturn, 0x400100, 0x400004, 2, {});
  unit_.flush();
  EXPECT_EQ(rest(), (std::vector<uint8_t>{0xdb}));  // E, E
}

TEST_F(EteUnit, AnExceptionToFilteredCodeEndsTheTrace) {
  unit_.enable();
  unit_.stand(0x400000, {});
  unit_.exception(2, 0x400004, 0xffff'8000'8001'0400, 1, {});
  EXPECT_FALSE(unit_.tracing());
  unit_.stand(0xffff'8000'8001'0400, {});
  EXPECT_FALSE(unit_.tracing());
  unit_.flush();
  // Exception, call, return address: short address packet of one byte.
  EXPECT_EQ(rest(), (std::vector<uint8_t>{0x06, 0x05, 0x95, 0x01}));
}

// TRCRSR.TA (R_DPMBQ): in front of the first instruction out of the ranges an exception is traced, behind it none is.
TEST_F(EteUnit, AnExceptionBehindTheWayOutOfARangeIsTraced) {
  registers_.write(Register::kIncludeExclude, 1);
  registers_.write(Register::kAddress0, 0x400000);
  registers_.write(static_cast<Register>(static_cast<unsigned>(Register::kAddress0) + 1), 0x4000ff);
  using Bytes = std::vector<uint8_t>;
  struct Way {
    Kind kind;
    uint64_t to;
    bool one_more;  // instruction out there retires
    Bytes packets;
  };
  const Way ways[] = {
      {Kind::kIndirect,
       0x400200,
       false,
       {0xf7, 0x06, 0x44, 0x95, 0x80, 0x01}},  // E, exception with the target
      {Kind::kDirect, 0x400200, false, {0xf7, 0x06, 0x05, 0x95, 0x80, 0x01}},
      {Kind::kStraight, 0x400100, false, {0x06, 0x05, 0x95, 0x40}},
      {Kind::kIndirect, 0x400200, true, {0xf7}},
      {Kind::kStraight, 0x400100, true, {}},
  };
  for (const Way& way : ways) {
    bytes_.clear();
    unit_.enable();
    unit_.stand(0x400000, {});
    unit_.retire(way.kind, 0x400000, way.to, 1, {});
    EXPECT_FALSE(unit_.tracing());
    unit_.stand(way.to, {});
    if (way.one_more) unit_.retire(Kind::kStraight, way.to, way.to + 4, 2, {});
    unit_.exception(2, way.to + (way.one_more ? 4 : 0), 0xffff'8000'8001'0400, 2, {});
    EXPECT_FALSE(unit_.open());
    unit_.flush();
    EXPECT_EQ(rest(), way.packets) << static_cast<int>(way.kind) << way.one_more;
    unit_.disable();
  }
}

TEST_F(EteUnit, TrfcrTakesEffectWithIsb) {
  registers_.write(Register::kViewInst, 1 | 1 << 9);
  unit_.enable();
  constexpr uint64_t kAt = 0xffff'8000'8000'0000;
  unit_.stand(kAt, {});
  registers_.write(Register::kTrfcr, 0);
  unit_.retire(Kind::kStraight, kAt, kAt + 4, 1, {});
  EXPECT_TRUE(unit_.tracing());
  unit_.retire(Kind::kIsb, kAt + 4, kAt + 8, 2, {});
  EXPECT_FALSE(unit_.tracing());
  unit_.flush();
  EXPECT_EQ(rest(), (std::vector<uint8_t>{0xf7}));
}

// While collection is stopped, trace is discarded, and the unit does not learn of it (DDI 0487, R_YMVZL).
TEST_F(EteUnit, NothingTellsOfWhatTheBufferDiscarded) {
  unit_.enable();
  accept_ = false;
  unit_.stand(0x400000, {});
  EXPECT_TRUE(unit_.lost());
  accept_ = true;
  unit_.begin_after_loss();
  bytes_.clear();
  unit_.stand(0x400010, {});
  unit_.flush();
  ASSERT_EQ(bytes_.size(), kStart);
  EXPECT_TRUE(std::equal(kAsync.begin(), kAsync.end(), bytes_.begin()));
}

// DDI 0487, R_QHSBN: any indirect branch, also one that is a call, whose own entry is pushed before (R_SLDXR).
TEST_F(EteUnit, AnyIndirectBranchMatchesTheReturnStack) {
  registers_.write(Register::kConfig, 1 << 12);
  unit_.enable();
  unit_.stand(0x400000, {});
  unit_.retire(Kind::kCall, 0x400000, 0x400100, 1, {});
  unit_.retire(Kind::kIndirect, 0x400100, 0x400004, 2, {});
  unit_.retire(Kind::kIndirectCall, 0x400004, 0x400008, 3, {});
  unit_.flush();
  EXPECT_EQ(rest(), (std::vector<uint8_t>{0xff}));  // E, E, E
}

// DDI 0487, R_WRXCW: a call that is broadcast is not pushed, so the return to it has an address, also where returns
// are not broadcast.
TEST_F(EteUnit, BroadcastCallsAreNotOnTheReturnStack) {
  registers_.write(Register::kConfig, 1 << 12 | 1 << 3);
  registers_.write(Register::kBroadcastCtl, 1);  // not within range 0
  registers_.write(Register::kAddress0, 0x400100);
  registers_.write(static_cast<Register>(static_cast<unsigned>(Register::kAddress0) + 1), 0x4001ff);
  unit_.enable();
  unit_.stand(0x400000, {});
  unit_.retire(Kind::kCall, 0x400000, 0x400100, 1, {});
  unit_.retire(Kind::kReturn, 0x400100, 0x400004, 2, {});
  unit_.flush();
  // E, the low bits of the target, each time
  EXPECT_EQ(rest(), (std::vector<uint8_t>{0xf7, 0x95, 0x40, 0xf7, 0x95, 0x01}));
}

// DDI 0487, R_MHYFV: ISB is one of the direct instructions, and counts as taken.
TEST_F(EteUnit, AnIsbIsBroadcast) {
  registers_.write(Register::kConfig, 1 << 3);
  unit_.enable();
  unit_.stand(0x400000, {});
  unit_.retire(Kind::kIsb, 0x400000, 0x400004, 1, {});
  unit_.flush();
  EXPECT_EQ(rest(), (std::vector<uint8_t>{0xf7, 0x95, 0x01}));
}

// DDI 0487, R_YYWTR: an ISB asks for a timestamp, and so does synchronization; where trace begins, that follows the first
// P0 element (R_CWHHW).
TEST_F(EteUnit, TimestampsFollowContextSynchronization) {
  registers_.write(Register::kConfig, 1 << 11);
  unit_.enable();
  unit_.stand(0x400000, 0x10);
  unit_.retire(Kind::kDirect, 0x400000, 0x400100, 1, 0x11);
  unit_.retire(Kind::kDirect, 0x400100, 0x400200, 2, 0x12);
  unit_.retire(Kind::kIsb, 0x400200, 0x400204, 3, 0x13);
  unit_.flush();
  EXPECT_EQ(rest(), (std::vector<uint8_t>{0xf7, 0x02, 0x11, 0xdb, 0x02, 0x13}));  // E, time; E, E, time
}

// DDI 0487, K10.5.9.
TEST_F(EteUnit, TsbCsyncAsksForATimestamp) {
  registers_.write(Register::kConfig, 1 << 11);
  unit_.enable();
  unit_.stand(0x400000, 0x10);
  unit_.retire(Kind::kDirect, 0x400000, 0x400100, 1, 0x11);
  unit_.flush();
  unit_.retire(Kind::kDirect, 0x400100, 0x400200, 2, 0x12);
  unit_.retire(Kind::kDirect, 0x400200, 0x400300, 3, 0x13);
  unit_.flush();
  EXPECT_EQ(rest(), (std::vector<uint8_t>{0xf7, 0x02, 0x11, 0xf7, 0x02, 0x12, 0xf7}));
}

// DDI 0487, R_YFMWB: the first count is unknown. R_MWJHD: that of a timestamp leaves the counter alone.
TEST_F(EteUnit, CycleCountsBeginUnknownAndTimestampsLeaveThem) {
  registers_.write(Register::kConfig, 1 << 11 | 1 << 4);
  registers_.write(Register::kCycleCtl, 4);
  unit_.enable();
  unit_.stand(0x400000, {});
  const size_t begin = bytes_.size();
  unit_.retire(Kind::kDirect, 0x400000, 0x400100, 10, {});
  unit_.retire(Kind::kIsb, 0x400100, 0x400104, 13, 0x11);
  unit_.retire(Kind::kDirect, 0x400104, 0x400200, 16, {});
  unit_.flush();
  test::EtmWriter expected({.cycle_threshold = 4});
  expected.atom(true);
  expected.cycle_count_f1({});
  expected.atom(true);
  expected.timestamp(0x11, 3);
  expected.atom(true);
  expected.cycle_count_f1(6);
  expected.flush();
  EXPECT_EQ(std::vector<uint8_t>(bytes_.begin() + static_cast<std::ptrdiff_t>(begin), bytes_.end()),
            expected.take());
}

// K10.5.2.16: a timestamp without a count has an unknown one.
TEST_F(EteUnit, ATimestampBehindTheCountersEndHasNoCount) {
  registers_.write(Register::kConfig, 1 << 11 | 1 << 4);
  registers_.write(Register::kCycleCtl, 0xfff);
  unit_.enable();
  unit_.stand(0x400000, {});
  const size_t begin = bytes_.size();
  unit_.retire(Kind::kIsb, 0x400000, 0x400004, 4095, 0x11);
  unit_.retire(Kind::kIsb, 0x400004, 0x400008, 4096, 0x12);
  unit_.flush();
  test::EtmWriter expected;
  expected.atom(true);
  expected.timestamp(0x11, 4095);
  expected.atom(true);
  expected.timestamp(0x12);
  expected.flush();
  EXPECT_EQ(std::vector<uint8_t>(bytes_.begin() + static_cast<std::ptrdiff_t>(begin), bytes_.end()),
            expected.take());
}

// A decoder can know of them: the buffer ends behind the packet, not within it.
TEST_F(EteUnit, AtomsOfTheLastPacketThatFitsAreNotLost) {
  unit_.enable();
  unit_.stand(0x400000, {});
  fills_at_ = kStart + 2;  // in the address after the atom
  unit_.retire(Kind::kIndirect, 0x400000, 0x400100, 1, {});
  unit_.flush();
  EXPECT_TRUE(unit_.lost());
  EXPECT_EQ(told_, 1U);
  EXPECT_EQ(lost_, 0U);
  unit_.retire(Kind::kDirect, 0x400100, 0x400200, 2, {});
  unit_.flush();
  EXPECT_EQ(told_, 1U);
  EXPECT_EQ(lost_, 2U);
}

TEST(EteBuffer, FillModeStopsAtTheLimit) {
  Registers registers;
  std::array<uint8_t, 4096> page{};
  unsigned interrupts = 0;
  TraceBuffer buffer(
      registers, [&](uint64_t) { return page.data(); }, [&] { ++interrupts; });
  registers.write(Register::kBufferBase, kBuffer);
  registers.write(Register::kBufferPointer, kBuffer + 4000);
  registers.write(Register::kBufferLimit, (kBuffer + 4096) | 1);
  EXPECT_TRUE(buffer.update());
  const std::vector<uint8_t> bytes(100, 0x5a);
  EXPECT_FALSE(buffer.write(bytes));
  EXPECT_EQ(buffer.accepted(), 96U);
  EXPECT_EQ(interrupts, 1U);
  EXPECT_FALSE(buffer.running());
  EXPECT_EQ(registers[Register::kBufferPointer], kBuffer);
  EXPECT_EQ(registers[Register::kBufferStatus], 1U << 22 | 1U << 20 | 1U << 17 | 1U);  // IRQ, WRAP, S, filled
  EXPECT_EQ(page[4095], 0x5a);
  registers.write(Register::kBufferStatus, 0);
  EXPECT_TRUE(buffer.update());
}

TEST(EteRegisters, AreFoundByNumber) {
  EXPECT_EQ(register_of(system_register(2, 1, 0, 1, 0)), Register::kPrgCtl);
  EXPECT_EQ(register_of(system_register(2, 1, 7, 15, 6)), Register::kDevArch);
  EXPECT_EQ(register_of(system_register(3, 0, 4, 6, 0)), Register::kNone);  // ICC_PMR_EL1
  Registers r;
  r.write(Register::kClaimSet, 2);
  EXPECT_EQ(r.read(Register::kClaimClear), 2U);
  r.write(Register::kClaimClear, 2);
  EXPECT_EQ(r.read(Register::kClaimClear), 0U);
  r.write(Register::kIdr0, ~0ull);
  EXPECT_EQ(r.read(Register::kIdr0), idr::k0);
}

uint64_t bits(uint64_t value, unsigned high, unsigned low) {
  return value >> low & ((2ull << (high - low)) - 1);
}

Register at(unsigned offset) { return register_of(trace_register(offset)); }

// TRCIDR5 (DDI 0487, D24.4): each field has a value that is not reserved, and tells of the registers that there are.
TEST(EteRegisters, ResourcesAreAsTrcidr5Says) {
  const uint64_t idr5 = Registers().read(Register::kIdr5);
  EXPECT_EQ(bits(idr5, 8, 0), 0x1ffU);  // NUMEXTIN: any PMU event; the other values are reserved
  const uint64_t selectors = bits(idr5, 11, 9), counters = bits(idr5, 30, 28);
  for (unsigned i = 0; i < 4; ++i) {
    EXPECT_EQ(at(0x120 + 4 * i) != Register::kNone, i < selectors) << "TRCEXTINSELR" << i;
    EXPECT_EQ(at(0x140 + 4 * i) != Register::kNone, i < counters) << "TRCCNTRLDVR" << i;
    EXPECT_EQ(at(0x150 + 4 * i) != Register::kNone, i < counters) << "TRCCNTCTLR" << i;
    EXPECT_EQ(at(0x160 + 4 * i) != Register::kNone, i < counters) << "TRCCNTVR" << i;
  }
  EXPECT_EQ(bits(idr5, 21, 16), 7U);  // TRACEIDSIZE: 7 bits of TRCTRACEIDR
  Registers registers;
  registers.write(Register::kTraceId, ~0ull);
  EXPECT_EQ(registers.read(Register::kTraceId), 0x7fU);
  EXPECT_EQ(bits(idr5, 27, 25), 0U);  // NUMSEQSTATE
  for (unsigned offset : {0x100U, 0x104U, 0x108U, 0x118U, 0x11cU})
    EXPECT_EQ(at(offset), Register::kNone) << offset;
  EXPECT_EQ(idr5 & ~0x7e3f'0fffull & 0xffff'ffffull, 0U);  // what is left: RES0, ATBTRIG, LPOVERRIDE
}

// TRCIDR4: address comparators, resource selectors, context ID comparators.
TEST(EteRegisters, ComparatorsAreAsTrcidr4Says) {
  const uint64_t idr4 = Registers().read(Register::kIdr4);
  for (unsigned i = 0; i < 16; ++i) {
    const bool compared = i < 2 * bits(idr4, 3, 0);
    EXPECT_EQ(at(0x400 + 8 * i) != Register::kNone, compared) << "TRCACVR" << i;
    EXPECT_EQ(at(0x480 + 8 * i) != Register::kNone, compared) << "TRCACATR" << i;
  }
  for (unsigned i = 2; i < 32; ++i)  // 0 and 1 are the constants FALSE and TRUE
    EXPECT_EQ(at(0x200 + 4 * i) != Register::kNone, i < 2 * (bits(idr4, 19, 16) + 1)) << "TRCRSCTLR" << i;
  for (unsigned i = 0; i < 8; ++i)
    EXPECT_EQ(at(0x600 + 8 * i) != Register::kNone, i < bits(idr4, 27, 24)) << "TRCCIDCVR" << i;
}

}  // namespace
}  // namespace asof::ete
