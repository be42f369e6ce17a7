// From blocks of translated code to what retired: the log, and the decoder's view of the same execution.
#include <fstream>
#include <iterator>

#include "tests/support/temp_dir.h"
#include "tests/tools/board/pt_plugin/pt_fixture.h"
#include "tools/board/pt_plugin/follower.h"

namespace asof::pt::test {
namespace {

class PtFollower : public PtFixture {
 protected:
  PtFollower() : log_(path()), follower(unit, log_) {}
  std::string path() const { return (dir_.path() / "cpu0.log").string(); }

  static CodeBlock block_of(uint64_t address, std::initializer_list<std::vector<uint8_t>> insns) {
    CodeBlock b;
    b.address = address;
    uint16_t at = 0;
    for (const auto& i : insns) {
      b.offsets.push_back(at);
      at = static_cast<uint16_t>(at + i.size());
      b.last = classify(i);
    }
    b.offsets.push_back(at);
    return b;
  }
  // A block begins and `insns` of its instructions.
  void begin(const CodeBlock& b, unsigned insns) {
    follower.block(b, place(b.address), begun_, tsc);
    begun_ += insns;
    tsc += insns;
  }
  void begin(CodeBlock&&, unsigned) = delete;  // the follower looks at it again
  void interrupt(uint64_t from, uint64_t to, bool exception) {
    follower.interruption({from, {}, {}}, place(to), exception, begun_, tsc);
  }
  void on(uint64_t next) { follower.write_ctl(kBoth | kTraceEn, next - 2, place(next), cr3, begun_, tsc); }
  void off(uint64_t ip) { follower.write_ctl(kBoth, ip, place(ip + 2), cr3, ++begun_, tsc); }

  // Block records as "address+instructions/flags"; lost ones with a !
  std::string log() {
    log_.close();
    std::ifstream file(path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    std::string out;
    for (size_t i = 0; i + sizeof(machine::LogRecord) <= bytes.size(); i += sizeof(machine::LogRecord)) {
      machine::LogRecord r;
      std::memcpy(&r, bytes.data() + i, sizeof r);
      if (r.code == machine::kLogMark) continue;
      records.push_back(r);
      out += fmt::format("{}{:x}+{}/{}{}", out.empty() ? "" : " ", r.address & 0xfff, r.count, r.flags & 127,
                         r.flags & machine::kLogLost ? "!" : "");
    }
    return out;
  }

  asof::test::TempDir dir_;
  CpuLog log_;
  Follower follower;
  uint64_t begun_ = 100;
  std::vector<machine::LogRecord> records;
};

// nop, nop, jne 0 | at 4: nop, rep movsb, nop, jmp rax
const std::vector<uint8_t> kNop{0x90}, kJne{0x75, 0xfc}, kRep{0xf3, 0xa4}, kJmpRax{0xff, 0xe0},
    kMovFault{0x8b, 0x07};

TEST_F(PtFollower, WholeBlocks) {
  const CodeBlock a = block_of(kCode, {kNop, kNop, kJne}), b = block_of(kCode + 4, {kNop, kJmpRax});
  on(kCode);
  begin(a, 3);
  begin(a, 3);
  begin(b, 2);
  begin(b, 1);
  off(kCode + 5);
  EXPECT_EQ(log(), "0+3/34 0+3/32 4+2/32 4+1/8");
  EXPECT_EQ(follower.unexplained(), 0U);
  // The second is known when the TNT is written, that is with the TIP after the third.
  EXPECT_LT(records[0].output, records[1].output);
  EXPECT_EQ(records[1].output, records[2].output);
  EXPECT_LT(records[2].output, records[3].output);
  decoder.code(kCode, {0x90, 0x90, 0x75, 0xfc, 0x90, 0xff, 0xe0});
  ran = {kCode, kCode + 1, kCode + 2, kCode, kCode + 1, kCode + 2, kCode + 4, kCode + 5, kCode + 4};
  expect_both();
}

// STI and POPF end a block: what they made of the flag is seen where the next one begins.
TEST_F(PtFollower, InterruptFlagAtTheEndOfABlock) {
  const CodeBlock a = block_of(kCode, {kNop, {0xfb}}), b = block_of(kCode + 2, {kNop, kJmpRax});
  Place masked = kernel(kCode);
  masked.interrupts = false;
  follower.write_ctl(kBoth | kEventEn | kTraceEn, kCode - 2, masked, cr3, begun_, tsc);
  const uint64_t start = unit.written();
  follower.block(a, masked, begun_, tsc);
  begun_ += 2;
  begin(b, 2);
  EXPECT_EQ(packets_after(start), "mode:5 fup:2");
}

// A fault, an instruction begun anew, and one that is executed alone.
TEST_F(PtFollower, PartsOfBlocks) {
  const CodeBlock a = block_of(kCode, {kNop, kMovFault, kNop, kJmpRax});
  const CodeBlock rest = block_of(kCode + 1, {kMovFault, kNop, kJmpRax}),
                  last = block_of(kCode + 3, {kNop, kJmpRax});
  const CodeBlock handler = block_of(kCode + 0x100, {kNop, {0x48, 0xcf}});
  on(kCode);
  begin(a, 2);
  interrupt(kCode + 1, kCode + 0x100, true);
  begin(handler, 2);
  begin(rest, 1);  // begun anew, without an exception
  begin(rest, 1);  // done alone: the next block begins after it
  begin(last, 2);
  begin(a, 1);
  off(kCode);
  EXPECT_EQ(log(), "0+1/10 100+2/33 1+1/0 3+2/32 0+1/8");
  EXPECT_EQ(follower.unexplained(), 0U);
}

TEST_F(PtFollower, RepeatedString) {
  const CodeBlock a = block_of(kCode, {kNop, kRep}), again = block_of(kCode + 1, {kRep});
  const CodeBlock next = block_of(kCode + 3, {kNop, kJmpRax});
  const CodeBlock handler = block_of(kCode + 0x100, {kNop, {0x48, 0xcf}});
  on(kCode);
  begin(a, 2);
  begin(again, 1);
  interrupt(kCode + 1, kCode + 0x100, false);
  begin(handler, 2);
  begin(again, 1);
  begin(next, 1);
  off(kCode + 3);
  EXPECT_EQ(log(), "0+1/2 100+2/33 1+1/0 3+1/8");
  EXPECT_EQ(follower.unexplained(), 0U);
}

// A jump to itself has retired when it is interrupted there. A call whose push is begun anew, or faults, has not.
TEST_F(PtFollower, TheSameAddressAgain) {
  const CodeBlock self = block_of(kCode, {{0xeb, 0xfe}}), handler = block_of(kCode + 0x100, {{0x48, 0xcf}});
  const CodeBlock call = block_of(kCode + 0x20, {kNop, {0xe8, 0xda, 0xff, 0xff, 0xff}});
  const CodeBlock anew = block_of(kCode + 0x21, {{0xe8, 0xda, 0xff, 0xff, 0xff}});
  on(kCode + 0x20);
  begin(call, 2);
  begin(anew, 1);
  interrupt(kCode + 0x21, kCode + 0x100, true);
  begin(handler, 1);
  begin(anew, 1);
  begin(self, 1);
  interrupt(kCode, kCode + 0x100, false);
  begin(handler, 1);
  begin(self, 1);
  off(kCode);
  EXPECT_EQ(log(), "20+1/2 100+1/33 21+1/0 0+1/0 100+1/33 0+1/8");
}

// What the output could not take is marked as lost, up to the branch that is still known to have been reached. Each
// TIP has three bytes, so that at one of three offsets the last one just fills the region.
class PtFollowerStop : public PtFollower, public ::testing::WithParamInterface<unsigned> {};

TEST_P(PtFollowerStop, LostAfterStop) {
  const unsigned offset = GetParam();
  const CodeBlock self = block_of(kCode, {kNop, kJmpRax});
  const uint64_t entry = 0x10000 | 16;  // 4 KiB, STOP
  std::memcpy(ram.data() + 0x1000, &entry, sizeof entry);
  output.base = 0x1000, output.mask = uint64_t{offset} << 32 | 0x7f;
  follower.write_ctl(kBoth | kTraceEn | kToPa, kCode - 2, place(kCode), cr3, begun_, tsc);
  for (int i = 0; i < 2000; ++i) begin(self, 2);
  off(kCode);
  log();
  ASSERT_EQ(records.size(), 2000U);
  size_t known = 0;
  while (known < records.size() && !(records[known].flags & machine::kLogLost)) ++known;
  for (size_t i = known; i < records.size(); ++i) EXPECT_TRUE(records[i].flags & machine::kLogLost);
  EXPECT_LE(records[known - 1].output, 4096U);
  // libipt and asof show the same number, from the trace alone.
  decoder.code(kCode, {0x90, 0xff, 0xe0});
  decoder.pt.raw(std::span(ram).subspan(kBuffer + offset, unit.written()));
  EXPECT_EQ(decoder.decode().ips().size(), 2 * known);
}
INSTANTIATE_TEST_SUITE_P(Offsets, PtFollowerStop, ::testing::Values(0U, 1U, 2U));

}  // namespace
}  // namespace asof::pt::test
