// A static branch that is switched while the trace runs: its text, its pokes and the packets of its paths.
// One unit of time everywhere: TSC ticks, nanoseconds; the clock's error is 0 unless a test sets it.
#pragma once
#include <algorithm>
#include <iterator>

#include "tests/arch/x86/flow_fixture.h"

namespace asof::x86::test {

constexpr Addr kEntry = FlowFixture::kCode + 0x10;  // where most tests start: a few NOPs, then the site
constexpr Addr kSite = FlowFixture::kCode + 0x20;
constexpr Addr kOn = FlowFixture::kCode + 0x80;  // the unlikely part
constexpr Addr kHandler = FlowFixture::kCode + 0x200;

inline const Bytes kNop5 = asof::test::nop5_bytes();

// A static branch as in the kernel. NOP5 falls through to a conditional branch, JMP leads to the unlikely part,
// which ends in an indirect jump: different packets.
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
  void poke_on(Time t) { poke(kSite, kNop5, jump_on(), t); }
  void poke_off(Time t) { poke(kSite, jump_on(), kNop5, t); }
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

 private:
  static Bytes jump_on() { return asof::test::jmp32_bytes(kSite, kOn); }
};

inline const std::vector<Addr> kOffPath = {kSite, kSite + 5, kSite + 7, kSite + 8, kEntry};
inline const std::vector<Addr> kOnPath = {kSite, kOn, kOn + 1, kEntry};

inline std::vector<Ran> at_site(const Decoded& d) {
  std::vector<Ran> out;
  std::ranges::copy_if(d.ran, std::back_inserter(out), [](const Ran& r) { return r.ip == kSite; });
  return out;
}

inline void expect_all(const Decoded& d, Confidence c) {
  for (const Ran& r : d.ran) EXPECT_EQ(r.confidence, c) << fmt::format("{:#x}", r.ip);
}

}  // namespace asof::x86::test
