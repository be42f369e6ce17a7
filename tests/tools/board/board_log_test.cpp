// The parts of a simulated board that need no emulator: the reader of the plugin's log, the relation of the
// guest's clock to the count of instructions, and the conversion of executed blocks to packets and truth.
#include <gtest/gtest.h>

#include <stdexcept>

#include "arch/x86/packet.h"
#include "tests/support/bytes.h"
#include "tools/board/arm64_flow.h"
#include "tools/board/log.h"
#include "tools/board/protocol.h"
#include "tools/board/x86_flow.h"

namespace asof::board {
namespace {

using test::ByteSink;

constexpr Addr kCode = 0xffffffff81000000, kEntry = 0xffffffff81001000;

// Writes a log as the plugin does.
class LogBuilder {
 public:
  uint32_t block(Addr address, std::vector<std::vector<uint8_t>> insns) {
    blocks_.u64(address), blocks_.u32(count_), blocks_.u32(static_cast<uint32_t>(insns.size()));
    for (const auto& i : insns) blocks_.u8(static_cast<uint8_t>(i.size()));
    for (const auto& i : insns) blocks_.raw(i);
    return count_++;
  }
  LogBuilder& unit(board_kind kind, uint64_t count, uint16_t cpu = 0, uint32_t block = 0) {
    log_.u64(count), log_.u32(block), log_.u16(cpu), log_.u16(static_cast<uint16_t>(kind));
    return *this;
  }
  LogBuilder& words(uint64_t a, uint64_t b) {
    log_.u64(a), log_.u64(b);
    return *this;
  }
  Log read(uint64_t ns_per_tick = 1) const { return read_log(log_.bytes(), blocks_.bytes(), ns_per_tick); }
  std::vector<uint8_t> log() const { return log_.bytes(); }
  std::vector<uint8_t> blocks() const { return blocks_.bytes(); }

 private:
  ByteSink log_, blocks_;
  uint32_t count_ = 0;
};

const std::vector<uint8_t> kNop1{0x90}, kRet{0xc3}, kSysret{0x48, 0x0f, 0x07}, kIret{0x48, 0xcf}, kInt3{0xcc},
    kPushMinus1{0x6a, 0xff}, kJne2{0x75, 0x02}, kRepStos{0xf3, 0xaa};

TEST(BoardLog, SaysHowMuchOfABlockRan) {
  LogBuilder b;
  const auto first = b.block(kCode, {kNop1, kNop1, kNop1, kRet});
  b.unit(BOARD_LOG_AWAY, 0, 1).unit(BOARD_LOG_BLOCK, 5, 0, first).unit(BOARD_LOG_MARK, 6).words(100, 0);
  b.unit(BOARD_LOG_AWAY, 8, 1).unit(BOARD_LOG_STOP, 20);
  const Log log = b.read();
  ASSERT_EQ(log.cpus.size(), 2U);
  ASSERT_EQ(log.cpus[0].size(), 1U);
  EXPECT_EQ(log.cpus[0][0].executed, 3U) << "the other CPU's unit ends the count";
  EXPECT_EQ(log.cpus[1].size(), 2U);
  EXPECT_EQ(log.instructions, 20U);
}

TEST(BoardLog, DamageIsReported) {
  LogBuilder whole;
  whole.block(kCode, {kNop1, kRet});
  whole.unit(BOARD_LOG_BLOCK, 5, 0, 0)
      .unit(BOARD_LOG_FRAME, 6)
      .words(1, 2)
      .words(3, 4)
      .unit(BOARD_LOG_STOP, 9);
  EXPECT_NO_THROW(whole.read());
  const auto log = whole.log(), blocks = whole.blocks();
  for (size_t cut = 0; cut < log.size(); ++cut)
    EXPECT_THROW(read_log(std::span(log).first(cut), blocks, 1), std::runtime_error) << cut;
  for (size_t cut = 0; cut < blocks.size(); ++cut)
    EXPECT_THROW(read_log(log, std::span(blocks).first(cut), 1), std::runtime_error) << cut;
  LogBuilder backwards;
  backwards.unit(BOARD_LOG_AWAY, 9).unit(BOARD_LOG_AWAY, 8).unit(BOARD_LOG_STOP, 9);
  EXPECT_THROW(backwards.read(), std::runtime_error);
  LogBuilder unknown;
  unknown.unit(BOARD_LOG_BLOCK, 1, 0, 7).unit(BOARD_LOG_STOP, 9);
  EXPECT_THROW(unknown.read(), std::runtime_error);
}

TEST(BoardClock, FollowsMarksAndGivesItsError) {
  Clock c;
  c.mark(104, 1100, false);  // the counter was read at 100: bias 1000
  c.mark(204, 1199, false);  // one less than promised
  EXPECT_EQ(c.error_bound(), 1U);
  EXPECT_EQ(c.ns(150), 1150U);
  EXPECT_EQ(c.ns(300), 1299U);
  c.mark(304, 9'000'300, true);  // both CPUs were idle
  EXPECT_EQ(c.jumps(), 1U);
  EXPECT_EQ(c.error_bound(), 1U);
  EXPECT_EQ(c.ns(400), 9'000'400U);
  c.mark(5404, 9'000'600, false);  // interrupted after reading the counter: unusable
  EXPECT_EQ(c.skipped(), 1U);
  EXPECT_EQ(c.ns(6000), 9'006'000U);
  uint64_t last = 0;
  for (uint64_t n = 0; n < 7000; ++n) {
    EXPECT_GE(c.ns(n), last) << n;
    last = c.ns(n);
  }
}

TEST(BoardClock, ACoarseCounterSaysNoMoreThanItsTick) {
  Clock c(16);
  c.mark(20, 10, false);  // 160 ns at count 16
  c.mark(29, 10, false);  // still the same tick
  EXPECT_EQ(c.error_bound(), 0U);
  EXPECT_EQ(c.ns(32), 176U);
  EXPECT_EQ(c.ticks(32), 11U);
}

X86Options x86_options() {
  X86Options o;
  o.trace.user = false;
  o.trace.mtc = false;
  o.is_entry = [](Addr a) { return a == kEntry; };
  o.known = [](Addr, std::span<const uint8_t>) { return true; };
  o.perf_time = [](uint64_t tsc) { return tsc; };
  return o;
}

// Kinds of the TIP-like packets outside PSB+, in order.
std::vector<x86::Pk> packets(std::span<const uint8_t> trace) {
  std::vector<x86::Pk> out;
  bool sync = false;
  for (const uint8_t *p = trace.data(), *end = p + trace.size(); p < end;) {
    const x86::Packet k = x86::read_packet(p, end);
    if (k.type == x86::Pk::kEnd || k.size == 0) break;
    p += k.size;
    if (k.type == x86::Pk::kPsb) sync = true;
    const bool flow = k.type == x86::Pk::kTip || k.type == x86::Pk::kPge || k.type == x86::Pk::kPgd ||
                      k.type == x86::Pk::kFup;
    if (!sync && flow) out.push_back(k.type);
    if (k.type == x86::Pk::kPsbend) sync = false;
  }
  return out;
}

// A system call hits an INT3, whose handler returns to the instruction after it.
TEST(BoardX86, AnInt3NeverRetires) {
  LogBuilder b;
  const auto call = b.block(kCode, {kNop1, kInt3});
  const auto entry = b.block(kEntry, {kPushMinus1, kIret});
  const auto rest = b.block(kCode + 2, {kNop1, kSysret});
  b.unit(BOARD_LOG_AWAY, 0).unit(BOARD_LOG_MARK, 10).words(10, 0);
  b.unit(BOARD_LOG_BLOCK, 20, 0, call).unit(BOARD_LOG_BLOCK, 22, 0, entry);
  b.unit(BOARD_LOG_FRAME, 23).words(kCode + 2, 0x10).words(0x246, 0);
  b.unit(BOARD_LOG_BLOCK, 24, 0, rest).unit(BOARD_LOG_AWAY, 26).unit(BOARD_LOG_STOP, 30);
  const Log log = b.read();
  const X86Cpu cpu = encode_x86(log, 0, x86_options());
  EXPECT_EQ(cpu.int3_hits, 1U);
  EXPECT_EQ(cpu.truth.count(), 5U);
  ASSERT_EQ(cpu.truth.runs().size(), 3U);
  EXPECT_EQ(cpu.truth.runs()[0].instructions, 1U);
  EXPECT_EQ(cpu.truth.runs()[0].flags, test::TruthRun::kRestart | test::TruthRun::kInterrupted);
  EXPECT_EQ(cpu.truth.runs()[1].flags, test::TruthRun::kAsync);
  using x86::Pk;
  EXPECT_EQ(packets(cpu.trace), (std::vector{Pk::kPge, Pk::kFup, Pk::kTip, Pk::kTip, Pk::kPgd}));
}

// An interrupt after a conditional branch: the frame shows the direction of the branch.
TEST(BoardX86, TheFrameTellsWhereABranchWent) {
  for (const bool taken : {false, true}) {
    LogBuilder b;
    const Addr target = kCode + (taken ? 4 : 2);
    const auto branch = b.block(kCode, {kJne2});
    const auto entry = b.block(kEntry, {kPushMinus1, kIret});
    const auto rest = b.block(target, {kSysret});
    b.unit(BOARD_LOG_AWAY, 0).unit(BOARD_LOG_MARK, 10).words(10, 0);
    b.unit(BOARD_LOG_BLOCK, 20, 0, branch).unit(BOARD_LOG_BLOCK, 21, 0, entry);
    b.unit(BOARD_LOG_FRAME, 22).words(target, 0x10).words(0x246, 0);
    b.unit(BOARD_LOG_BLOCK, 23, 0, rest).unit(BOARD_LOG_AWAY, 24).unit(BOARD_LOG_STOP, 30);
    const Log log = b.read();
    const X86Cpu cpu = encode_x86(log, 0, x86_options());
    EXPECT_EQ(cpu.truth.count(), 4U);
    EXPECT_EQ(cpu.exceptions, 1U);
  }
}

TEST(BoardX86, StringInstructionsCountOnce) {
  LogBuilder b;
  const auto rep = b.block(kCode, {kRepStos});
  const auto rest = b.block(kCode + 2, {kSysret});
  b.unit(BOARD_LOG_AWAY, 0).unit(BOARD_LOG_MARK, 10).words(10, 0);
  b.unit(BOARD_LOG_BLOCK, 20, 0, rep).unit(BOARD_LOG_BLOCK, 90, 0, rest);
  b.unit(BOARD_LOG_AWAY, 91).unit(BOARD_LOG_STOP, 100);
  const Log log = b.read();
  EXPECT_EQ(encode_x86(log, 0, x86_options()).truth.count(), 2U);
}

TEST(BoardX86, AFlowThatCannotBeIsAnError) {
  LogBuilder b;
  const auto one = b.block(kCode, {kNop1});
  const auto other = b.block(kCode + 64, {kSysret});
  b.unit(BOARD_LOG_AWAY, 0).unit(BOARD_LOG_MARK, 10).words(10, 0);
  b.unit(BOARD_LOG_BLOCK, 20, 0, one).unit(BOARD_LOG_BLOCK, 21, 0, other);
  b.unit(BOARD_LOG_AWAY, 22).unit(BOARD_LOG_STOP, 30);
  const Log log = b.read();
  EXPECT_THROW(encode_x86(log, 0, x86_options()), std::runtime_error);
}

TEST(BoardArm64, StoresBecomePokes) {
  LogBuilder b;
  b.unit(BOARD_LOG_MARK, 4).words(0, 0);
  b.unit(BOARD_LOG_STORE, 160).words(0x40000010, 0x14000002);  // NOP to B
  b.unit(BOARD_LOG_STORE, 320).words(0x40000010, 0x14000002);  // no change
  b.unit(BOARD_LOG_STORE, 480).words(0x80000000, 1);           // elsewhere
  b.unit(BOARD_LOG_STOP, 500);
  GuestFiles files;
  files.addresses = {{"_stext", 0xffff800008010000}, {"_etext", 0xffff800008011000}};
  files.physical_text = 0x40000000;
  std::vector<uint8_t> text(0x1000);
  for (size_t i = 0; i < text.size(); i += 4)
    text[i] = 0x1f, text[i + 1] = 0x20, text[i + 2] = 0x03, text[i + 3] = 0xd5;
  files.kcore = {{0xffff800008010000, text}};
  files.clock.mult = 16;
  const auto pokes = stored_pokes(b.read(16), files);
  ASSERT_EQ(pokes.size(), 1U);
  EXPECT_EQ(pokes[0].address, 0xffff800008010010U);
  EXPECT_EQ(pokes[0].old_bytes, (std::vector<uint8_t>{0x1f, 0x20, 0x03, 0xd5}));
  EXPECT_EQ(pokes[0].new_bytes, (std::vector<uint8_t>{0x02, 0x00, 0x00, 0x14}));
  EXPECT_EQ(pokes[0].time, 160U);
}

}  // namespace
}  // namespace asof::board
