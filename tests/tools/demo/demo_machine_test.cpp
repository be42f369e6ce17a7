// The simulated machine against libipt: for every setting of its trace units, libipt decodes the trace to
// exactly the instructions of the truth.
#include <gtest/gtest.h>

#include "tests/support/assembler.h"
#include "tests/support/libipt_decode.h"
#include "tests/support/machine.h"

namespace asof::test {
namespace {

constexpr Addr kKernel = 0xffffffff81000000, kUser = 0x401000;

// User code that computes and makes system calls, kernel code that serves them, a timer handler.
struct SmallSystem {
  Assembler kernel{kKernel}, user{kUser};

  SmallSystem() {
    kernel.function("entry").straight(7).call("service").straight(6).sysret();
    kernel.function("service").straight(1).jcc8(Cond::kEqual, "service.l").straight(8).ptwrite_rax();
    kernel.label("service.l").call("deep").label("service.i").call_rax().straight(2).ret();
    kernel.function("deep").straight(4).jcc32(Cond::kSign, "deep.l").call("deeper").label("deep.l").ret();
    kernel.function("deeper").straight(9).ret();
    kernel.function("timer").straight(4).call("deeper").straight(6).iret();
    user.function("main").straight(3);
    user.label("next").straight(12).call("work").label("plus0").call("here").label("here").straight(3);
    user.straight(5).syscall().jcc8(Cond::kLess, "next").straight(2).jmp32("next");
    user.function("work")
        .label("work.l")
        .straight(10)
        .straight(13)
        .label("work.j")
        .jcc8(Cond::kNotEqual, "work.l")
        .ret();
  }

  std::unique_ptr<Machine> machine(TracerConfig trace, uint64_t seed) {
    const std::vector<uint8_t> kernel_bytes = kernel.finish(), user_bytes = user.finish();
    MachineConfig c;
    c.cpus = 1, c.seed = seed, c.trace = trace;
    c.syscall_entry = kernel.address("entry");
    auto m = std::make_unique<Machine>(c);
    m->memory().load(kKernelSpace, kKernel, kernel_bytes);
    m->memory().load(1, kUser, user_bytes);
    const Addr targets[] = {kernel.address("deep"), kernel.address("deeper")};
    m->on_indirect(kernel.address("service.i"),
                   [targets](SimCpu& cpu) { return targets[cpu.random.below(2)]; });
    m->loop_at(user.address("work.j"), 7);
    SimTask& t = m->add_task(100, 100, "small", 1, kUser, kernel.address("entry"));
    m->run_task(0, t, kUser);
    return m;
  }
};

void expect_libipt_agrees(const Machine& m, const LibiptResult& got) {
  std::vector<Addr> want;
  for (const Executed& e : m.cpu(0).truth.instructions()) want.push_back(e.ip);
  EXPECT_TRUE(got.errors.empty()) << got.errors.size() << " errors, first at " << got.errors.front();
  ASSERT_EQ(got.ips.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(got.ips[i], want[i]) << "instruction " << i;
}

LibiptResult decode(Machine& m) {
  const TracerConfig& t = m.config().trace;
  const LibiptConfig config{t.mtc_freq, t.tsc_ctc_n, t.tsc_ctc_d, t.cbr};
  return libipt_decode(m.cpu(0).tracer.writer().bytes(), config,
                       [&m](Addr a, std::span<uint8_t> out, uint64_t) {
                         const std::vector<uint8_t> b = m.memory().read(1, a, out.size());
                         std::copy(b.begin(), b.end(), out.begin());
                         return b.size();
                       });
}

class EveryTracerSetting : public testing::TestWithParam<int> {};

TEST_P(EveryTracerSetting, LibiptDecodesTheTruth) {
  const int bits = GetParam();
  TracerConfig t;
  t.kernel = (bits & 3) != 1;
  t.user = (bits & 3) != 2;
  t.return_compression = (bits & 4) == 0;
  t.cyc = (bits & 8) != 0;
  t.long_tnt = (bits & 16) != 0;
  t.mtc = (bits & 32) == 0;
  t.psb_bytes = 512;
  SmallSystem system;
  const auto m = system.machine(t, 7 + static_cast<uint64_t>(bits));
  m->start_trace(0);
  const uint64_t begin = m->config().tsc_start;
  for (uint64_t i = 1; i < 40; ++i) m->interrupt_at(begin + i * 2333, 0, system.kernel.address("timer"));
  m->run_until(begin + 100'000);
  m->stop_trace(0);
  ASSERT_GT(m->cpu(0).truth.count(), 1000U);
  expect_libipt_agrees(*m, decode(*m));
}

INSTANTIATE_TEST_SUITE_P(Demo, EveryTracerSetting, testing::Range(0, 64));

TEST(DemoMachine, OverflowIsSeenAndOnlyTheLostPartIsMissing) {
  SmallSystem system;
  const auto m = system.machine({}, 3);
  m->start_trace(0);
  const uint64_t begin = m->config().tsc_start;
  m->overflow_at(begin + 30'000, begin + 40'000, 0);
  m->run_until(begin + 100'000);
  m->stop_trace(0);
  const LibiptResult got = decode(*m);
  EXPECT_EQ(got.overflows, 1U);
  EXPECT_EQ(m->cpu(0).truth.restarts(), 2U);
  // No packet shows what ran between the last packet before the overflow and the overflow.
  std::vector<Addr> want;
  for (const Executed& e : m->cpu(0).truth.instructions()) want.push_back(e.ip);
  EXPECT_LE(got.ips.size(), want.size());
  EXPECT_GE(got.ips.size() + 12, want.size());
  EXPECT_EQ(std::vector<Addr>(got.ips.end() - 2000, got.ips.end()),
            std::vector<Addr>(want.end() - 2000, want.end()));
}

TEST(DemoMachine, TheSameSeedGivesTheSameBytes) {
  SmallSystem a, b;
  const auto m1 = a.machine({}, 5), m2 = b.machine({}, 5);
  for (Machine* m : {m1.get(), m2.get()}) {
    m->start_trace(0);
    m->run_until(m->config().tsc_start + 20'000);
    m->stop_trace(0);
  }
  EXPECT_EQ(m1->cpu(0).tracer.writer().bytes(), m2->cpu(0).tracer.writer().bytes());
  EXPECT_EQ(m1->cpu(0).truth.hash(), m2->cpu(0).truth.hash());
}

}  // namespace
}  // namespace asof::test
