// A simulated counter for tests of the clock, and the timing packets.
#pragma once
#include "arch/x86/clock.h"
#include "tests/arch/x86/flow_fixture.h"

namespace asof::x86::test {

inline Packet tsc(uint64_t v) {
  Packet k;
  k.type = Pk::kTsc;
  k.value = v & ((1ULL << 56) - 1);
  return k;
}
inline Packet tma(uint64_t ctc, uint64_t fc) {
  Packet k;
  k.type = Pk::kTma;
  k.value = ctc & 0xffff;
  k.value2 = fc & 0x1ff;
  return k;
}
inline Packet mtc(uint64_t v) {
  Packet k;
  k.type = Pk::kMtc;
  k.value = v & 0xff;
  return k;
}
inline Packet cyc(uint64_t v) {
  Packet k;
  k.type = Pk::kCyc;
  k.value = v;
  return k;
}
inline Packet cbr(uint64_t v) {
  Packet k;
  k.type = Pk::kCbr;
  k.value = v;
  return k;
}

// A TSC and the crystal clock that drives it: one CTC tick is n / d TSC ticks.
struct Counter {
  uint32_t n = 100, d = 1;
  uint8_t mtc_freq = 3;

  uint64_t ctc(uint64_t t) const { return static_cast<uint64_t>(static_cast<unsigned __int128>(t) * d / n); }
  // First TSC value at which the crystal counter shows `tick`.
  uint64_t tsc_of(uint64_t tick) const {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(tick) * n + d - 1) / d);
  }
  Config config() const {
    Config c;
    c.mtc_freq = mtc_freq;
    c.tsc_ctc_n = n;
    c.tsc_ctc_d = d;
    c.time = TimeConversion{};
    return c;
  }
  void start(Clock& c, uint64_t t) const {
    c.update(tsc(t));
    c.update(tma(ctc(t), t - tsc_of(ctc(t))));
  }
};

}  // namespace asof::x86::test
