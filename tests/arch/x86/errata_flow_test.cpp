// Errata of processors, packet by packet: each trace is one that a machine with the erratum writes, and
// without the erratum the same bytes mean something else.
#include <gtest/gtest.h>

#include "arch/x86/errata.h"
#include "tests/arch/x86/flow_fixture.h"

namespace asof::x86::test {
namespace {

constexpr uint8_t kBroadwell = 0x3d, kSkylake = 0x4e, kSkylakeServer = 0x55;

CpuModel model(uint8_t number) { return {.intel = true, .family = 6, .model = number}; }

std::vector<Addr> at(std::initializer_list<uint64_t> offsets) {
  std::vector<Addr> out;
  for (const uint64_t o : offsets) out.push_back(A + o);
  return out;
}

// BDM64: a transaction's abort at a conditional branch, whose TNT bit is missing.
TEST(Errata, Bdm64AbortSwallowsTheBitOfABranch) {
  for (const bool has : {true, false}) {
    FlowFixture s;
    if (has) s.config.cpu = model(kBroadwell);
    // 0: NOP; JE 4; 3: NOP; 4: NOP ... 10: target of the abort
    s.code(A, {0x90, 0x74, 0x01, 0x90, 0x90, 0x90}).code(A + 0x10, {0x90, 0x90}).start(A);
    s.pt.mode_tsx(false, true);
    s.pt.fup(A + 4);
    s.pt.tip(A + 0x10);
    stop_at(s, A + 0x11);
    const Decoded d = s.run({});
    if (has) {
      EXPECT_EQ(hex(d.ips()), hex(at({0, 1, 0x10})));
      EXPECT_TRUE(d.gaps.empty());
    } else {
      ASSERT_EQ(d.gaps.size(), 1U);
      EXPECT_EQ(d.gaps[0].code, Code::kInterruptNotReached);
    }
  }
}

// SKD007: a CYC before an OVF lost its second byte: 63 02 f3 is a garbled byte and 02 f3.
TEST(Errata, Skd007GarbledCycleCountInFrontOfAnOverflow) {
  for (const bool has : {true, false}) {
    FlowFixture s;
    if (has) s.config.cpu = model(kSkylake);
    s.code(A, {0x90, 0x90}).code(A + 0x10, {0x90, 0x90}).start(A);
    s.pt.raw(Bytes{0x07});  // CYC with an extension ...
    s.pt.ovf();             // ... 02 f3
    s.pt.fup(A + 0x10);
    stop_at(s, A + 0x11);
    const Decoded d = s.run({});
    EXPECT_EQ(d.of(EventKind::kOverflow).size(), has ? 1U : 0U);
    if (has) {
      EXPECT_EQ(d.ran.back().ip, A + 0x10);
    }
  }
}

// SKD022: the FUP of a VM entry that ends tracing may hold any address on the path.
TEST(Errata, Skd022StopAtAVmEntryIsAPlainStop) {
  for (const bool has : {true, false}) {
    FlowFixture s;
    if (has) s.config.cpu = model(kSkylake);
    s.code(A, {0x0f, 0x01, 0xc2, 0x90}).start(A);  // VMLAUNCH
    s.pt.fup(A);
    s.pt.tip_pgd();
    const Decoded d = s.run({});
    EXPECT_EQ(d.ran.size(), has ? 1U : 0U);
    EXPECT_EQ(d.of(EventKind::kTraceStop).size(), 1U);
    EXPECT_TRUE(d.gaps.empty());
  }
}

// SKL014: a direct branch out of the filter region ends tracing with a TIP.PGD without an address.
TEST(Errata, Skl014DirectBranchOutOfTheFilter) {
  for (const bool has : {true, false}) {
    FlowFixture s;
    if (has) s.config.cpu = model(kSkylake);
    s.config.filter = {{A, A + 0x10}};
    s.code(A, {0x90, 0xeb, 0x1d}).code(A + 0x20, {0x90, 0xff, 0xe0}).start(A);  // JMP 20; there JMP RAX
    s.pt.tip_pgd();
    const Decoded d = s.run({});
    EXPECT_EQ(hex(d.ips()), hex(has ? at({0, 1}) : at({0, 1, 0x20, 0x21})));
  }
}

// SKZ84: a TMA with reserved bits set, one byte too long.
TEST(Errata, Skz84TimePacketOneByteTooLong) {
  for (const bool has : {true, false}) {
    FlowFixture s;
    if (has) s.config.cpu = model(kSkylakeServer);
    s.code(A, {0x74, 0x00, 0x90, 0x90}).start(A);
    s.pt.tnt(true);
    s.pt.flush();
    s.pt.raw(Bytes{0x02, 0x73, 0xff, 0xff, 0x01, 0xff, 0xff, 0x00});
    stop_at(s, A + 3);
    const Decoded d = s.run({});
    EXPECT_EQ(d.gaps.empty(), has);
    if (has) {
      EXPECT_EQ(hex(d.ips()), hex(at({0, 2})));
    }
  }
}

}  // namespace
}  // namespace asof::x86::test
