// The simulated machine and its trace unit against OpenCSD's full decoder: while text does not change, it
// decodes the trace to what ran.
#include "tests/support/etm_machine.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/etm_opencsd.h"
#include "tests/support/etm_program.h"

namespace asof::test {
namespace {

struct Traced {
  arm64::Source source;
  std::vector<uint8_t> trace;
  std::vector<Addr> shown;
};

Traced run(const EtmProgram& program, EtmMachineConfig config, uint64_t ns, unsigned pauses) {
  config.vector = program.vector();
  EtmMachine machine(config);
  program.install(machine);
  EtmCpu cpu(machine, 0);
  SimRandom random(config.seed + 99);
  const uint64_t start = config.start;
  for (uint64_t t = start; (t += random.between(100, 3000)) < start + ns;) cpu.interrupt_at(t);
  for (unsigned i = 0; i < pauses; ++i) {
    const uint64_t from = start + random.below(ns), until = from + random.between(10, 500);
    random.chance(50) ? cpu.stop_at(from, until) : cpu.overflow_at(from, until);
  }
  cpu.start(program.entry());
  cpu.run_until(start + ns);
  cpu.finish();
  Traced out{etm4_source(0x10, config.unit.return_stack), cpu.unit().writer().bytes(), {}};
  out.source.idr8 = config.unit.spec_depth;
  if (config.unit.cycle_counts) out.source.configr |= 1U << 4;
  for (const A64Executed& e : cpu.executed()) {
    if (e.shown) out.shown.push_back(e.ip);
  }
  return out;
}

CsdRead reader(const EtmProgram& program) {
  return [bytes = program.bytes()](Addr a, std::span<uint8_t> out) -> uint32_t {
    if (a < EtmProgram::kText || a - EtmProgram::kText >= bytes.size()) return 0;
    const size_t n = std::min(out.size(), bytes.size() - (a - EtmProgram::kText));
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(a - EtmProgram::kText), n, out.begin());
    return static_cast<uint32_t>(n);
  };
}

void expect_same(const Traced& r, const EtmProgram& program) {
  const CsdDecode got = csd_decode(r.source, r.trace, reader(program));
  ASSERT_FALSE(got.failed);
  const size_t n = std::min(got.instructions.size(), r.shown.size());
  for (size_t i = 0; i < n; ++i)
    ASSERT_EQ(got.instructions[i], r.shown[i]) << "instruction " << i << " of " << r.shown.size();
  ASSERT_EQ(got.instructions.size(), r.shown.size());
}

TEST(EtmMachine, OpenCsdFindsWhatRan) {
  uint64_t instructions = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    SimRandom random(seed);
    EtmMachineConfig config{.seed = seed};
    config.unit.return_stack = random.chance(50);
    config.unit.timestamp_every = static_cast<unsigned>(random.below(4) * 3);
    config.unit.cycle_counts = random.chance(30);
    // Where an exception packet gives a branch's target, OpenCSD 1.3.3 also removes an entry from the return
    // stack.
    config.unit.merge_exceptions = !config.unit.return_stack;
    config.unit.sync_bytes = static_cast<unsigned>(random.between(60, 600));
    const EtmProgram program(seed);
    const Traced r = run(program, config, 20'000, 0);
    expect_same(r, program);
    if (HasFatalFailure()) return;
    instructions += r.shown.size();
  }
  EXPECT_GT(instructions, 1'000'000U);
}

TEST(EtmMachine, TraceThatStopsAndOverflows) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const EtmProgram program(seed);
    EtmMachineConfig config{.seed = seed};
    config.unit.return_stack = seed % 2 == 0;
    config.unit.merge_exceptions = !config.unit.return_stack;
    expect_same(run(program, config, 10'000, 6), program);
    if (HasFatalFailure()) return;
  }
}

TEST(EtmMachine, Speculation) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const EtmProgram program(seed);
    EtmMachineConfig config{.seed = seed};
    config.unit.spec_depth = 2 + static_cast<unsigned>(seed % 30);
    expect_same(run(program, config, 10'000, 0), program);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace asof::test
