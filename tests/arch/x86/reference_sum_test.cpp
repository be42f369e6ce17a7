// libipt's block decoder, as far as it answers, finds what its instruction decoder finds: in every segment the
// same addresses and no gap, whatever the text and the trace are like.
#include "arch/x86/reference_sum.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/arch/x86/flow_fixture.h"
#include "tests/arch/x86/simulation.h"

namespace asof::x86::test {
namespace {

struct Answers {
  uint64_t given = 0, instructions = 0, none = 0;
};

void compare(const Simulation& run, unsigned cpus, Answers& all) {
  ReferenceSums sums = run.reference_sums();
  DecodeOptions options;
  options.reference_engine = true;
  const auto reference = run.decoder(options);
  for (unsigned cpu = 0; cpu < cpus; ++cpu) {
    for (const Segment& s : run.segments(cpu)) {
      const auto sum = sums.sum(s);
      if (!sum) {
        ++all.none;
        continue;
      }
      Decoded d;
      reference->decode(s, d);
      uint64_t hash = 0;
      for (const Addr ip : d.ips()) hash = hash * kHashFactor + ip;
      ASSERT_EQ(sum->instructions, d.ran.size()) << "cpu " << cpu << ", segment " << s.index;
      ASSERT_EQ(sum->hash, hash) << "cpu " << cpu << ", segment " << s.index;
      ASSERT_TRUE(d.gaps.empty()) << d.gaps[0].reason;
      ++all.given;
      all.instructions += sum->instructions;
    }
  }
}

TEST(ReferenceSums, AreThoseOfEveryInstruction) {
  Answers all;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const Simulation run({.seed = seed, .ticks = 6'000});
    compare(run, 1, all);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(all.instructions, 100'000U);
  EXPECT_GT(all.given, 20 * all.none);
}

// Text that changes is not libipt's: there is no answer wherever it runs.
TEST(ReferenceSums, ChangesProcessesAndLosses) {
  Answers all;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    compare(Simulation({.seed = seed, .cpus = 2, .ticks = 12'000, .pokes = 3}), 2, all);
    compare(Simulation({.seed = seed, .cpus = 2, .ticks = 12'000, .overflows = true, .processes = true}), 2,
            all);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(all.given, 100U);
  EXPECT_GT(all.none, 100U);
}

TEST(ReferenceSums, DamagedTrace) {
  Answers all;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Simulation run({.seed = seed, .ticks = 6'000});
    asof::test::SimRandom random(seed);
    Bytes trace = run.trace(0);
    for (int i = 0; i < 6; ++i)
      trace[random.below(trace.size())] ^= static_cast<uint8_t>(1U << random.below(8));
    run.replace_trace(0, trace);
    compare(run, 1, all);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(all.given, 100U);
  EXPECT_GT(all.none, 100U);
}

// Text in very many pieces is not given to libipt's image, whose cost is the square of them.
TEST(ReferenceSums, TextInManyPiecesHasNoAnswer) {
  for (const size_t pieces : {size_t{1000}, size_t{10'000}}) {
    FlowFixture s;
    for (size_t i = 1; i < pieces; ++i) s.code(A + 0x1000 + 32 * i, Bytes(16, 0x90));
    Assembler a(A);
    a.bytes({0x90}).ret();
    s.code(a).start(A);
    s.pt.tip(A + 0x1000 + 32);
    stop_at(s, A + 0x1000 + 34);
    s.expect(at({0, 1, 0x1020, 0x1021}));
    ReferenceSums sums(s.config, std::span<const Stream>(&s.stream, 1), s.text());
    EXPECT_EQ(sums.sum(s.segments.at(0)).has_value(), pieces == 1000) << pieces;
  }
}

}  // namespace
}  // namespace asof::x86::test
