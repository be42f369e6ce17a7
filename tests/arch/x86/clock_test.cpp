// The clock against a simulated counter whose every tick is known.
#include "arch/x86/clock.h"

#include "tests/arch/x86/clock_counter.h"

namespace asof::x86::test {
namespace {

TEST(Clock, KnowsNothingWithoutTsc) {
  Counter sim;
  const Config config = sim.config();
  Clock c(config, 0);
  EXPECT_EQ(c.now(), kTimeMin);
  EXPECT_EQ(c.floor(), kTimeMin);
  EXPECT_EQ(c.ceiling(), kTimeMax);
  EXPECT_FALSE(c.has_time());
  c.update(mtc(3));
  c.update(cyc(300));
  EXPECT_EQ(c.now(), kTimeMin);
  c.update(tsc(1000));
  EXPECT_EQ(c.now(), 1000);
  EXPECT_EQ(c.floor(), 1000);
  EXPECT_EQ(c.ceiling(), 1000);

  Config untimed = config;
  untimed.time.reset();
  Clock u(untimed, 0);
  u.update(tsc(1000));
  EXPECT_EQ(u.now(), kTimeMin);
  EXPECT_FALSE(u.has_time());
}

TEST(Clock, MtcIsExactForEveryFrequencyAndOverAnyWrap) {
  for (const auto& [n, d] :
       {std::pair(100U, 1U), std::pair(312U, 2U), std::pair(84U, 2U), std::pair(3U, 2U)}) {
    for (const uint8_t freq : std::initializer_list<uint8_t>{0, 3, 6, 8, 9, 10, 13, 15}) {
      SCOPED_TRACE(fmt::format("tick {}/{} freq {}", n, d, freq));
      const Counter sim{n, d, freq};
      const Config config = sim.config();
      Clock c(config, 0);
      const uint64_t start = 0x123456789a;
      sim.start(c, start);
      ASSERT_EQ(c.now(), static_cast<Time>(start));
      const uint64_t first = (sim.ctc(start) >> freq) + 1;
      asof::test::SimRandom random(n * 100 + freq);
      uint64_t step = 1;
      for (uint64_t k = first; k < first + 1500; k += step) {
        c.update(mtc(k));
        // The tick itself; the packet's fast counter and both roundings are off by a tick of the TSC each.
        const Time want = static_cast<Time>(sim.tsc_of(k << freq));
        ASSERT_NEAR(static_cast<double>(c.now()), static_cast<double>(want), 2.0) << "MTC " << k - first;
        // Lost MTCs do no harm if fewer than a full wrap of the counter are missing; with its upper bits
        // still unknown (freq above 8) the first one must not be lost.
        step = random.chance(10) ? random.between(1, 255) : 1;
      }
    }
  }
}

TEST(Clock, MtcWithoutTmaIsIgnored) {
  const Counter sim;
  const Config config = sim.config();
  Clock c(config, 0);
  c.update(tsc(5000));
  EXPECT_FALSE(c.update(mtc(77)));
  EXPECT_EQ(c.now(), 5000);
  EXPECT_FALSE(c.knows_mtc());
  // A TSC packet invalidates the old TMA.
  sim.start(c, 100'000);
  EXPECT_TRUE(c.knows_mtc());
  c.update(tsc(200'000));
  EXPECT_FALSE(c.update(mtc(77)));
  EXPECT_EQ(c.now(), 200'000);

  Config no_ratio = config;
  no_ratio.tsc_ctc_d = 0;
  Clock u(no_ratio, 0);
  u.update(tsc(5000));
  u.update(tma(1, 0));
  EXPECT_FALSE(u.update(mtc(77)));
  EXPECT_EQ(u.now(), 5000);
}

TEST(Clock, TscIsExtendedByTheReference) {
  const Config config = Counter{}.config();
  constexpr uint64_t kTop = 0x01ULL << 56;
  struct Case {
    uint64_t reference, payload, want;
  };
  const Case cases[] = {
      {kTop | 0x1000, 0x2000, kTop | 0x2000},
      {kTop | 0xfffffffffffff0, 0x10, 2 * kTop | 0x10},  // wrapped in between
      {2 * kTop | 0x10, 0xfffffffffffff0, kTop | 0xfffffffffffff0},
      {0, 0x1234, 0x1234},                           // no reference: nothing is added
      {0x1234, 0xfffffffffffff0, 0xfffffffffffff0},  // never below zero
  };
  for (const Case& k : cases) {
    Clock c(config, k.reference);
    c.update(tsc(k.payload));
    EXPECT_EQ(c.now(), static_cast<Time>(k.want)) << fmt::format("{:#x} {:#x}", k.reference, k.payload);
  }
  // And from packet to packet.
  Clock c(config, 0);
  c.update(tsc(0xffffffffffff00));
  c.update(tsc(0x80));
  EXPECT_EQ(c.now(), static_cast<Time>(kTop | 0x80));
}

TEST(Clock, TimeConversionIsPerfs) {
  Config config = Counter{}.config();
  config.time = TimeConversion{
      .shift = 31, .mult = 894784853, .zero = 5'000'000'000, .cycles = 0, .mask = ~0ULL, .cap_short = false};
  Clock c(config, 0);
  const uint64_t t = 0x12'3456'789a'bcde;
  c.update(tsc(t));
  // tools/perf/util/tsc.c, in its two parts.
  const uint64_t quot = t >> 31, rem = t & ((1ULL << 31) - 1);
  const Time want = static_cast<Time>(5'000'000'000 + quot * 894784853 + ((rem * 894784853) >> 31));
  EXPECT_EQ(c.now(), want);
}

TEST(Clock, CyclesCountOnceTheRateIsMeasured) {
  const Counter sim;
  const Config config = sim.config();
  Clock c(config, 0);
  const uint64_t start = 1'000'000;
  sim.start(c, start);
  uint64_t tick = (sim.ctc(start) >> 3) + 1;
  EXPECT_FALSE(c.calibrated());
  c.update(cyc(5));
  EXPECT_EQ(c.now(), static_cast<Time>(start));  // the rate is not known yet
  // The core runs at twice the TSC's rate: 2 cycles a tick.
  uint64_t last = sim.tsc_of(tick << 3);
  c.update(cyc(2 * (last - start) - 5));
  c.update(mtc(tick));
  EXPECT_TRUE(c.calibrated());
  for (int i = 0; i < 50; ++i) {
    const uint64_t next = sim.tsc_of(++tick << 3);
    for (uint64_t part = 1; part <= 4; ++part) {
      c.update(cyc((next - last) / 2));
      const double truth = static_cast<double>(last + (next - last) * part / 4);
      EXPECT_NEAR(static_cast<double>(c.now()), truth, static_cast<double>(next - last) * 0.02 + 2);
      EXPECT_LE(c.floor(), static_cast<Time>(truth));
      EXPECT_GE(c.ceiling(), static_cast<Time>(truth));
    }
    c.update(mtc(tick));
    EXPECT_NEAR(static_cast<double>(c.now()), static_cast<double>(next), 2.0);
    last = next;
  }
}

TEST(Clock, CyclesByTheCoreBusRatio) {
  Config config = Counter{}.config();
  config.max_nonturbo = 24;
  Clock c(config, 0);
  c.update(tsc(10'000));
  c.update(cbr(48));  // the core runs at twice the TSC's rate
  c.update(cyc(2000));
  EXPECT_EQ(c.now(), 11'000);
  c.update(cbr(12));  // at half of it from here on
  c.update(cyc(500));
  EXPECT_EQ(c.now(), 12'000);
  EXPECT_LE(c.floor(), 12'000);
  EXPECT_GE(c.ceiling(), 12'000);
}

// A core that sleeps between two ticks does not count cycles: the rate must not be derived from that.
TEST(Clock, SleepIsNoRate) {
  const Counter sim;
  Config config = sim.config();
  config.max_nonturbo = 24;
  Clock c(config, 0);
  sim.start(c, 1'000'000);
  c.update(cbr(24));
  const uint64_t tick = (sim.ctc(1'000'000) >> 3) + 100;
  c.update(cyc(10));
  c.update(mtc(tick));
  const Time at = c.now();
  c.update(cyc(400));
  EXPECT_NEAR(static_cast<double>(c.now() - at), 400.0, 8.0);
}

// Bounds hold whatever the core does between two exact points. The estimate may be anything.
void expect_bounds(const Clock& c, Time truth) {
  EXPECT_LE(c.floor(), truth);
  EXPECT_GE(c.ceiling(), truth);
}

// At nominal rate a cycle is a tick. 9,000 of the 10,000 ticks between the two TSCs were sleep, in which no
// cycles are counted; the TSC packet after the sleep shows that it is over.
TEST(Clock, SleepBetweenTwoTscsIsNoRate) {
  for (const uint8_t max_nonturbo : std::initializer_list<uint8_t>{0, 30}) {
    SCOPED_TRACE(int{max_nonturbo});
    Config config = Counter{}.config();
    config.max_nonturbo = max_nonturbo;
    Clock c(config, 0);
    c.update(tsc(1'000'000));
    c.update(cbr(30));
    c.update(cyc(1000));
    expect_bounds(c, 1'001'000);
    expect_bounds(c, 1'009'999);
    c.update(tsc(1'010'000));
    c.update(cbr(30));
    c.update(cyc(600));
    expect_bounds(c, 1'010'600);
    if (max_nonturbo != 0) {
      EXPECT_GT(c.floor(), 1'010'400);
    }
  }
}

// Cycles of an old rate keep their margin after a CBR, and those up to the next CYC may be of either rate.
TEST(Clock, MarginHoldsOverAChangeOfRate) {
  Config config = Counter{}.config();
  config.max_nonturbo = 30;
  Clock c(config, 0);
  c.update(tsc(1'000'000));
  c.update(cbr(20));
  c.update(cyc(100'000));
  const Time truth = 1'140'000;  // not 150,000 ticks: the bus ran 7 % faster than it should
  expect_bounds(c, truth);
  c.update(cbr(30));
  expect_bounds(c, truth);
  c.update(cyc(60'000));  // two thirds of it still at the old rate
  expect_bounds(c, truth + 40'000 * 3 / 2 + 20'000);
  c.update(cbr(15));
  c.update(cyc(60'000));  // all of it at the old rate: the packet was late
  expect_bounds(c, truth + 80'000 + 60'000);
  c.update(cyc(60'000));
  expect_bounds(c, truth + 80'000 + 60'000 + 120'000);
  EXPECT_GT(c.floor(), truth + 80'000 + 60'000);
}

// A ratio that differs from the core:bus ratio measures something else: the core was stopped for a while.
TEST(Clock, MeasuredRateMustFitTheCoreBusRatio) {
  const Counter sim;
  Config config = sim.config();
  config.max_nonturbo = 24;
  Clock c(config, 0);
  sim.start(c, 1'000'000);
  c.update(cbr(24));
  const uint64_t tick = (sim.ctc(1'000'000) >> 3) + 1;
  c.update(mtc(tick));
  c.update(cyc(400));  // of 800
  c.update(mtc(tick + 1));
  const Time at = c.now();
  c.update(cyc(400));
  EXPECT_EQ(c.now(), at + 400);
  expect_bounds(c, at + 400);
}

TEST(Clock, Skl168FirstMtcAfterPsbDoesNotMeasure) {
  const Counter sim;
  const Config config = sim.config();
  Clock c(config, 0, true);
  sim.start(c, 1'000'000);
  const uint64_t tick = (sim.ctc(1'000'000) >> 3) + 1;
  c.update(cyc(3));
  c.update(mtc(tick));
  EXPECT_FALSE(c.calibrated());
  c.update(cyc(800));
  c.update(mtc(tick + 1));
  EXPECT_TRUE(c.calibrated());
}

// Core clocks that change all the time: the bounds hold, exact points never decrease.
TEST(Clock, BoundsHoldWhileTheRateVariesByATenth) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Counter sim{156, 1, 4};
    const Config config = sim.config();
    Clock c(config, 0);
    asof::test::SimRandom random(seed);
    uint64_t t = 50'000'000 + random.below(1000);
    sim.start(c, t);
    uint64_t period = sim.ctc(t) >> 4;
    Time exact = c.now();
    bool measured = false;
    uint64_t pending = 0;
    for (int i = 0; i < 2000; ++i) {
      // 1.5 cycles a tick, plus or minus 5 % over any interval.
      const uint64_t ticks = random.between(10, 600);
      const uint64_t cycles = ticks * 3 / 2 * random.between(95, 105) / 100;
      const uint64_t tick = sim.tsc_of((period + 1) << 4);
      if (t + ticks >= tick) {
        const uint64_t part = cycles * (tick - t) / ticks;
        c.update(cyc(pending + part));
        c.update(mtc(++period));
        ASSERT_GE(c.now(), exact);
        exact = c.now();
        ASSERT_NEAR(static_cast<double>(exact), static_cast<double>(tick), 2.0);
        measured = true;
        pending = cycles - part;
        t += ticks;
        while (sim.tsc_of((period + 1) << 4) <= t) c.update(mtc(++period));
        continue;
      }
      t += ticks;
      c.update(cyc(pending + cycles));
      pending = 0;
      if (!measured) continue;
      ASSERT_LE(c.floor(), static_cast<Time>(t) + 2) << "seed " << seed << " step " << i;
      ASSERT_GE(c.ceiling(), static_cast<Time>(t)) << "seed " << seed << " step " << i;
    }
  }
}

TEST(Clock, HostileValuesDoNotOverflow) {
  for (const uint8_t freq : std::initializer_list<uint8_t>{0, 15}) {
    const Counter sim{0xffffffff, 1, freq};
    Config config = sim.config();
    config.max_nonturbo = 255;
    config.time = TimeConversion{
        .shift = 63, .mult = 0xffffffff, .zero = ~0ULL, .cycles = ~0ULL, .mask = 1, .cap_short = true};
    Clock c(config, ~0ULL);
    c.update(cbr(1));
    for (int i = 0; i < 1000; ++i) {
      c.update(tsc(~0ULL * static_cast<uint64_t>(i & 1)));
      c.update(tma(0xffff, 0x1ff));
      c.update(mtc(static_cast<uint64_t>(i * 77)));
      c.update(cyc(~0ULL));
      EXPECT_LE(c.floor(), kTimeMax);
      EXPECT_GE(c.ceiling(), kTimeMin);
    }
  }
}

}  // namespace
}  // namespace asof::x86::test
