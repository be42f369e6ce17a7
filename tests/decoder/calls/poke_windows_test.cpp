// Which exceptions at a site are breakpoints: interrupts come there, too, at any time.
#include <gtest/gtest.h>

#include "decoder/calls/timeline_text.h"
#include "textstore/builder.h"

namespace asof::test {
namespace {

constexpr Addr kSite = 0xffffffff81000100, kBreakpoint = 0xffffffff81800a40, kTimer = 0xffffffff81800b20;
constexpr Addr kVectors = 0xffff800080010800;

class PokeWindow : public ::testing::Test {
 protected:
  PokeWindow() {
    Builder builder;
    builder.add_poke({.addr = kSite, .time = 1000, .old_bytes = kOld, .new_bytes = kNew});
    capture.text = std::move(builder).build();
    capture.machine = "x86_64";
    capture.symbols.add(
        {.range = {kBreakpoint, kBreakpoint + 0x20}, .name = "asm_exc_int3", .dso = "[kernel.kallsyms]"});
    capture.symbols.add({.range = {kTimer, kTimer + 0x20},
                         .name = "asm_sysvec_apic_timer_interrupt",
                         .dso = "[kernel.kallsyms]"});
    capture.symbols.finish();
  }
  class Collected final : public TimelineSink {
   public:
    void poke(const PokeSlice& p) override { pokes.push_back(p); }
    std::vector<PokeSlice> pokes;
  };
  PokeSlice after(std::vector<std::pair<Time, Addr>> exceptions) {
    PokeWindows windows(capture);
    for (const auto& [time, handler] : exceptions) windows.interrupted(0, time, kSite, handler);
    Collected out;
    windows.finish(out);
    return out.pokes.at(0);
  }

  static constexpr std::array<uint8_t, 5> kOld = {0x0f, 0x1f, 0x44, 0x00, 0x00}, kNew = {0xe9, 1, 0, 0, 0};
  Capture capture;
};

TEST_F(PokeWindow, IsFromTheFirstBreakpointToTheLast) {
  const PokeSlice p = after({{990, kBreakpoint}, {1005, kBreakpoint}});
  EXPECT_EQ(p.begin, 990);
  EXPECT_EQ(p.end, 1005);
  EXPECT_EQ(p.breakpoints, 2U);
}

TEST_F(PokeWindow, IsNotExtendedByInterrupts) {
  const PokeSlice p = after({{10, kTimer}, {995, kBreakpoint}, {50'000, kTimer}, {60'000, 0}});
  EXPECT_EQ(p.begin, 995);
  EXPECT_EQ(p.end, 1000);
  EXPECT_EQ(p.breakpoints, 1U);
}

// Until it is disarmed, at 9000.
TEST_F(PokeWindow, OfAKprobeIsAsLongAsItIsArmed) {
  constexpr std::array<uint8_t, 1> kPush = {0x55}, kInt3 = {0xcc};
  Builder builder;
  builder.add_poke({.addr = kSite, .time = 1000, .old_bytes = kPush, .new_bytes = kInt3});
  builder.add_poke({.addr = kSite, .time = 9000, .old_bytes = kInt3, .new_bytes = kPush});
  capture.text = std::move(builder).build();
  const PokeSlice p = after({{1500, kBreakpoint}, {8900, kBreakpoint}});
  EXPECT_EQ(p.begin, 1000);
  EXPECT_EQ(p.end, 8900);
  EXPECT_EQ(p.breakpoints, 2U);
}

TEST_F(PokeWindow, OnArm64IsToldByTheVector) {
  capture.machine = "aarch64";
  const PokeSlice p = after({{10, kVectors + 0x280}, {995, kVectors + 0x200}, {2000, kVectors + 0x400}});
  EXPECT_EQ(p.begin, 995);
  EXPECT_EQ(p.end, 1000);
  EXPECT_EQ(p.breakpoints, 1U);
}

// A BL whose first byte is that of an INT3 is nothing that stays armed: the nearest change counts.
TEST_F(PokeWindow, OnArm64AWordIsNoInt3) {
  constexpr std::array<uint8_t, 4> kNop = {0x1f, 0x20, 0x03, 0xd5}, kCall = {0xcc, 0x00, 0x00, 0x94};
  Builder builder;
  builder.add_poke({.addr = kSite, .time = 1000, .old_bytes = kNop, .new_bytes = kCall});
  builder.add_poke({.addr = kSite, .time = 9000, .old_bytes = kCall, .new_bytes = kNop});
  capture.text = std::move(builder).build();
  capture.machine = "aarch64";
  EXPECT_EQ(after({{8900, kVectors + 0x200}}).breakpoints, 0U);
}

}  // namespace
}  // namespace asof::test
