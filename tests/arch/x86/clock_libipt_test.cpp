// The clock against libipt's time.
#include <intel-pt.h>

#include "tests/arch/x86/clock_counter.h"

namespace asof::x86::test {
namespace {

// One conditional branch after each group of timing packets; compares the time of both decoders at it. libipt
// reports the time of the packets before the branch just queried, as the clock does. Tolerance: libipt
// rounds the fast counter differently (a few ticks), and takes its cycle rate from a longer history (2 % of
// an MTC period with CYC).
void compare_with_libipt(bool with_cyc, uint64_t seed) {
  const Counter sim{100, 1, 3};
  const Config config = sim.config();
  asof::test::SimRandom random(seed);
  PtWriter w;
  uint64_t t = 3'000'000'000 + random.below(100'000);
  PsbPlus g;
  g.tsc = t;
  g.tma = PsbPlus::Tma{static_cast<uint16_t>(sim.ctc(t)), static_cast<uint16_t>(t - sim.tsc_of(sim.ctc(t)))};
  g.cbr = 24;
  g.ip = FlowFixture::kCode;
  w.psb_plus(g);
  Config own_config = config;
  own_config.max_nonturbo = 24;
  uint64_t period = sim.ctc(t) >> 3, cycles_at = t;
  constexpr int kBranches = 3000;
  for (int i = 0; i < kBranches; ++i) {
    t += random.between(1, 300);
    while (sim.tsc_of((period + 1) << 3) <= t) {
      ++period;
      if (with_cyc) {
        w.cyc(sim.tsc_of(period << 3) - cycles_at);
        cycles_at = sim.tsc_of(period << 3);
      }
      w.mtc(static_cast<uint8_t>(period));
    }
    if (with_cyc && t != cycles_at) {
      w.cyc(t - cycles_at);
      cycles_at = t;
    }
    w.tnt(true);
    w.flush();
  }
  std::vector<uint8_t> bytes = w.bytes();
  pt_config pc;
  pt_config_init(&pc);
  pc.begin = bytes.data();
  pc.end = bytes.data() + bytes.size();
  pc.mtc_freq = 3;
  pc.cpuid_0x15_eax = 1;
  pc.cpuid_0x15_ebx = 100;
  pc.nom_freq = 24;
  pt_query_decoder* lib = pt_qry_alloc_decoder(&pc);
  uint64_t ip = 0;
  int status = pt_qry_sync_forward(lib, &ip);

  Clock clock(own_config, 0);
  const uint8_t* p = bytes.data();
  const uint8_t* const end = p + bytes.size();
  const double tolerance = with_cyc ? 0.02 * 800 + 8 : 8;
  for (int i = 0; i < kBranches; ++i) {
    for (;;) {
      const Packet k = read_packet(p, end);
      ASSERT_NE(k.type, Pk::kEnd);
      p += k.size;
      if (k.type == Pk::kTnt) break;
      clock.update(k);
    }
    while (status >= 0 && (status & pts_event_pending) != 0) {
      pt_event event;
      status = pt_qry_event(lib, &event, sizeof event);
    }
    int taken = 0;
    status = pt_qry_cond_branch(lib, &taken);
    ASSERT_GE(status, 0) << pt_errstr(pt_errcode(status)) << " at " << i;
    uint64_t time = 0;
    uint32_t lost_mtc = 0, lost_cyc = 0;
    ASSERT_EQ(pt_qry_time(lib, &time, &lost_mtc, &lost_cyc), 0);
    ASSERT_NEAR(static_cast<double>(clock.now()), static_cast<double>(time), tolerance) << "branch " << i;
  }
  pt_qry_free_decoder(lib);
}

TEST(ClockDifferential, MtcAgainstLibipt) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    compare_with_libipt(false, seed);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(ClockDifferential, CycAgainstLibipt) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    compare_with_libipt(true, seed);
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace asof::x86::test
