// Runs and paths by themselves: where they end, what they put on the return stack, and that decoders which
// share them agree.
#include "arch/x86/runs.h"

#include <thread>

#include "tests/arch/x86/scene.h"

namespace asof::x86::test {
namespace {

constexpr Addr kMain = 0x401000, kLoop = 0x401005, kJump = 0x401007, kCallee = 0x401100;

// main: call callee; loop: je main; jmp *%rax      callee: je ret; nop; ret
struct Program : Scene {
  std::shared_ptr<CodeMap> map;

  explicit Program(std::vector<Addr> hooks = {}) {
    code(kMain, {0xe8, 0xfb, 0x00, 0x00, 0x00, 0x74, 0xf9, 0xff, 0xe0});
    code(kCallee, {0x74, 0x01, 0x90, 0xc3});
    map = std::make_shared<CodeMap>(text(), TextAt::kAsof, std::move(hooks));
  }
  uint32_t at(RunCache& cache, Addr a) const { return cache.at(stream.contexts.at(0).space, a, 64); }
};

// The path, asked for until it is worth one.
Path warm(RunCache& cache, uint32_t run, uint32_t window) {
  for (int i = 0; i < 20; ++i) {
    if (const Path* path = cache.path(run, window)) return *path;
  }
  ADD_FAILURE() << "no path";
  return {};
}

TEST(Runs, GoThroughCallsUpToADecision) {
  const Program p;
  RunCache cache(p.map);
  const uint32_t id = p.at(cache, kMain);
  EXPECT_EQ(p.at(cache, kMain), id);
  const FlowRun& run = cache.run(id);
  EXPECT_EQ(run.end, RunEnd::kCond);
  EXPECT_EQ(run.ip, kMain);
  ASSERT_EQ(run.call_count, 1);
  EXPECT_EQ(cache.sites(run.calls)->ret, kLoop);
  EXPECT_EQ(cache.table()[id].instructions, 2U);
  EXPECT_EQ(cache.table()[id].size, 2U);
  EXPECT_EQ(cache.run(p.at(cache, kJump)).end, RunEnd::kIndirect);
}

TEST(Runs, WhatIsNotKnownIsForTheCarefulWalk) {
  const Program p;
  RunCache cache(p.map);
  EXPECT_EQ(cache.run(p.at(cache, 0x500000)).end, RunEnd::kStop);
  EXPECT_EQ(cache.run(p.at(cache, kCallee + 3)).end, RunEnd::kRet);
  EXPECT_EQ(warm(cache, p.at(cache, 0x500000), 0b11).used, 0U);
}

TEST(Paths, EndBehindAReturn) {
  const Program p;
  RunCache cache(p.map);
  const uint32_t main = p.at(cache, kMain);
  const Path taken = warm(cache, main, 0b1110101);  // je, ret; the rest is of other runs
  EXPECT_EQ(taken.used, 2U);
  EXPECT_EQ(taken.returns, 1U);
  ASSERT_EQ(taken.call_count, 1U);
  EXPECT_EQ(cache.sites(taken.calls)->ret, kLoop);
  EXPECT_EQ(cache.table()[taken.code >> 1].instructions, 3U);
  ASSERT_EQ(cache.table()[taken.code >> 1].size, 2U);
  EXPECT_EQ(cache.table().path(taken.code >> 1)[0], main << 1 | 1);
  // Other bits behind the return: the same path.
  EXPECT_EQ(warm(cache, main, 0b1111111).code, taken.code);
  EXPECT_EQ(warm(cache, main, 0b111).code, taken.code);
  // Not taken: through the NOP.
  EXPECT_EQ(cache.table()[warm(cache, main, 0b101).code >> 1].instructions, 4U);
}

TEST(Paths, EndInFrontOfWhatNeedsMore) {
  const Program p;
  RunCache cache(p.map);
  const Path path =
      warm(cache, p.at(cache, kLoop), 0b101);  // not taken, and a bit that jmp *%rax has no use for
  EXPECT_EQ(path.used, 1U);
  EXPECT_EQ(path.code, p.at(cache, kLoop) << 1);
  EXPECT_EQ(path.next, p.at(cache, kJump));
  EXPECT_EQ(warm(cache, path.next, 0b11).used, 0U);
  EXPECT_EQ(warm(cache, p.at(cache, kCallee + 3), 0b10).used, 0U) << "no return is not taken";
}

TEST(Paths, AStepIsOneRun) {
  const Program p;
  RunCache cache(p.map);
  const uint32_t main = p.at(cache, kMain);
  const Path step = cache.step(main, 0);
  EXPECT_EQ(step.used, 1U);
  EXPECT_EQ(step.code, main << 1);
  EXPECT_EQ(cache.run(step.next).ip, kCallee + 2);
  EXPECT_EQ(cache.step(p.at(cache, kJump), 1).used, 0U);
}

TEST(CodeMap, ThreadsFindTheSameRunsAndPaths) {
  const Program p;
  constexpr int kThreads = 4;
  struct Seen {
    std::vector<uint32_t> runs;
    std::vector<uint32_t> instructions;
  };
  std::vector<Seen> seen(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      RunCache cache(p.map);
      for (const Addr a : {kMain, kLoop, kJump, kCallee, kCallee + 2, kCallee + 3}) {
        const uint32_t run = p.at(cache, a);
        seen[t].runs.push_back(run);
        for (uint32_t window = 2; window < 1U << (Path::kBits + 1); ++window) {
          const Path path = warm(cache, run, window);
          seen[t].instructions.push_back(path.used == 0 ? 0 : cache.table()[path.code >> 1].instructions);
        }
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (int t = 1; t < kThreads; ++t) {
    EXPECT_EQ(seen[t].runs, seen[0].runs);
    EXPECT_EQ(seen[t].instructions, seen[0].instructions);
  }
}

}  // namespace
}  // namespace asof::x86::test
