// All output of a decoder for a segment, as lines, for comparing two walks that must be equal.
#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "arch/stream.h"

namespace asof::test {

inline std::string show_step(const Step& s) {
  const Block& b = *s.block;
  std::string bytes;
  for (uint32_t i = 0; i < b.size; ++i) bytes += fmt::format("{:02x}", b.bytes[i]);
  for (uint32_t i = 0; i < b.count; ++i) bytes += fmt::format(" {}", b.lengths[i]);
  return fmt::format(
      "{:x}+{} {} of {} kind {} to {:x} mode {} space {} origin {} {}..{} hash {:x} {:x} time {} conf {} "
      "flags {}: {}",
      b.ip, b.size, s.count, b.count, static_cast<int>(b.kind), b.target, b.mode, b.space, b.origin, b.from,
      b.until, b.hash, b.power, s.time, static_cast<int>(s.confidence), s.flags, bytes);
}

// All output of a decoder, one line each, in order.
struct Transcript final : ChunkSink {
  std::vector<std::string> lines;
  uint64_t in_runs = 0, in_sums = 0, instructions = 0, gaps = 0;

  // Sums (StepList::sums()) are those of the entries, one by one.
  void check_sums(const StepList& steps) {
    size_t done = 0;
    for (const StepList::SumMark& mark : steps.sums()) {
      ASSERT_GE(mark.begin, done);
      ASSERT_LT(mark.begin, mark.end);
      ASSERT_LE(mark.end, steps.size());
      done = mark.end;
      RunSum sum;
      for (const StepCode code : steps.codes().subspan(mark.begin, mark.end - mark.begin)) {
        ASSERT_NE(code, StepCode::kLoose);
        const Run& run = steps.run(code);
        EXPECT_EQ(run.confidence, mark.confidence);
        sum.hash = sum.hash * hash_power(run.instructions) + run.hash;
        sum.instructions += run.instructions;
        sum.branches += run.branches;
      }
      EXPECT_EQ(mark.sum.hash, sum.hash);
      EXPECT_EQ(mark.sum.instructions, sum.instructions);
      EXPECT_EQ(mark.sum.branches, sum.branches);
      in_sums += sum.instructions;
    }
  }

  void take(Chunk&& c) override {
    check_sums(c.steps);
    in_runs += c.steps.instructions_in_runs();
    gaps += c.gaps.size();
    size_t event = 0, gap = 0;
    const auto tell_up_to = [&](size_t position) {
      for (; gap < c.gaps.size() && c.gaps[gap].step <= position; ++gap) {
        const Gap& g = c.gaps[gap];
        lines.push_back(fmt::format("gap {} {}..{} time {}..{} ip {:x} to {:x}: {}", code_text(g.code),
                                    g.begin, g.end, g.time.lo, g.time.hi, g.ip, g.resume_ip, g.reason));
      }
      for (; event < c.events.size() && c.events[event].step <= position; ++event) {
        const Event& e = c.events[event];
        lines.push_back(fmt::format("event {} time {} ip {:x} {:x} {:x} at {}", static_cast<int>(e.kind),
                                    e.time, e.ip, e.a, e.b, e.offset));
      }
    };
    for (auto s = c.steps.begin(); s != c.steps.end(); ++s) {
      tell_up_to(s.position());
      lines.push_back(show_step(*s));
      instructions += s->count;
    }
    tell_up_to(c.steps.size());
  }
};

inline void expect_same(const Transcript& fast, const Transcript& careful) {
  const auto [a, b] = std::ranges::mismatch(fast.lines, careful.lines);
  EXPECT_EQ(a == fast.lines.end(), b == careful.lines.end());
  if (a != fast.lines.end() && b != careful.lines.end())
    FAIL() << "line " << a - fast.lines.begin() << ": " << *a << "\n careful: " << *b;
}

// The size of what was compared, and how much of it was decoded by the fast walk.
struct Shares {
  uint64_t in_runs = 0, in_sums = 0, instructions = 0, gaps = 0;
};

// The segments of the first CPU of a simulation (tests/arch/*/*simulation.h), decoded with and without the
// block cache: by a decoder that has already decoded the earlier ones, in small chunks, and by a new decoder
// for each.
template <class Simulation>
void compare_walks(const Simulation& run, Shares& shares) {
  const auto fast = run.decoder({.sum_runs = true});
  const auto pieces = run.decoder({.chunk_steps = 7});
  const auto careful = run.decoder({.block_cache = false});
  for (const Segment& s : run.segments(0)) {
    Transcript a, b, c, d;
    fast->decode(s, a);
    pieces->decode(s, b);
    careful->decode(s, c);
    run.decoder()->decode(s, d);
    EXPECT_EQ(c.in_runs, 0U);
    expect_same(a, c);
    expect_same(b, c);
    expect_same(d, c);
    if (testing::Test::HasFailure()) return;
    shares.in_runs += a.in_runs;
    shares.in_sums += a.in_sums;
    shares.instructions += a.instructions;
    shares.gaps += a.gaps;
  }
}

}  // namespace asof::test
