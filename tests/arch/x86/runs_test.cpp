// Runs and their links in isolation: where they end, what they leave on the return stack, that decoders
// which share them agree; and the return stack that the fast walk writes alongside.
#include "arch/x86/runs.h"

#include <deque>
#include <set>
#include <thread>
#include <tuple>

#include "arch/x86/state.h"
#include "tests/arch/x86/flow_fixture.h"
#include "tests/support/sim_random.h"

namespace asof::x86::test {
namespace {

constexpr Addr kMain = 0x401000, kLoop = 0x401005, kJump = 0x401007, kCallee = 0x401100;

// main: call callee; loop: je main; jmp *%rax      callee: je ret; nop; ret
struct Program : FlowFixture {
  std::shared_ptr<CodeMap> map;

  explicit Program(std::vector<Addr> hooks = {}) {
    code(kMain, {0xe8, 0xfb, 0x00, 0x00, 0x00, 0x74, 0xf9, 0xff, 0xe0});
    code(kCallee, {0x74, 0x01, 0x90, 0xc3});
    map = std::make_shared<CodeMap>(text(), TextAt::kAsof, std::move(hooks), CodeMap::Rules{});
  }
  RunId at(RunCache& cache, Addr a) const { return cache.at(stream.contexts.at(0).space, a, 64); }
};

TEST(Runs, GoThroughCallsUpToADecision) {
  const Program p;
  RunCache cache(p.map);
  const RunId id = p.at(cache, kMain);
  EXPECT_EQ(p.at(cache, kMain), id);
  const FlowRun& run = cache.run(id);
  EXPECT_EQ(run.end, RunEnd::kCond);
  EXPECT_EQ(run.ip, kMain);
  ASSERT_EQ(run.call_count, 1);
  EXPECT_EQ(cache.run(cache.return_run(run.calls, run)).ip, kLoop);
  EXPECT_EQ(cache.table()[id].instructions, 2U);
  EXPECT_EQ(cache.table()[id].size, 2U);
  EXPECT_EQ(cache.run(p.at(cache, kJump)).end, RunEnd::kIndirect);
}

TEST(Runs, WhatIsNotKnownIsForTheCarefulWalk) {
  const Program p;
  RunCache cache(p.map);
  EXPECT_EQ(cache.run(p.at(cache, 0x500000)).end, RunEnd::kStop);
  EXPECT_EQ(cache.run(p.at(cache, kCallee + 3)).end, RunEnd::kRet);
  EXPECT_FALSE(cache.follow(p.at(cache, 0x500000), 1));
  EXPECT_FALSE(cache.follow(p.at(cache, kCallee + 3), 0)) << "a return is always taken";
  EXPECT_FALSE(cache.follow(p.at(cache, kJump), 1));
}

TEST(Runs, TargetsAreFoundHoweverManyThereAre) {
  const Program p;
  RunCache cache(p.map);
  const Space space = p.stream.contexts.at(0).space;
  for (int round = 0; round < 2; ++round) {
    for (Addr a = 0x500000; a < 0x500000 + 3 * 5000; a += 3) {
      const RunId run = cache.target(space, a, 64);
      ASSERT_EQ(run, p.at(cache, a));
      ASSERT_EQ(cache.run(run).ip, a);
      ASSERT_EQ(cache.known_target(space, a, 64), run) << "the one met last";
      ASSERT_EQ(cache.known_target(kKernelSpace, a, 64), RunId::kNone);
    }
  }
}

TEST(Links, SayWhereARunLeadsAndWhatItLeaves) {
  const Program p;
  RunCache cache(p.map);
  const RunId main = p.at(cache, kMain);
  EXPECT_EQ(cache.link(main).next[1], Edge::kUnknown);
  ASSERT_TRUE(cache.follow(main, 1));
  const RunId taken = run_of(cache.link(main).next[1]);
  EXPECT_EQ(cache.run(taken).ip, kCallee + 3);
  EXPECT_EQ(cache.link(main).next[0], Edge::kUnknown);
  EXPECT_EQ(cache.link(main).next[1], edge_to(taken));
  EXPECT_EQ(Link::push(cache.link(main).effect), edge_to(p.at(cache, kLoop)));
  EXPECT_EQ(Link::instructions(cache.link(main).effect), 2U);
  EXPECT_EQ(cache.link(taken).next[1], Edge::kReturn);
  EXPECT_EQ(cache.link(taken).next[0], Edge::kUnknown);
  EXPECT_TRUE(cache.follow_indirect(p.at(cache, kJump)));
  EXPECT_EQ(cache.link(p.at(cache, kJump)).next[0], Edge::kIndirect);
  EXPECT_FALSE(cache.follow_indirect(main));
}

TEST(Links, AReturnToARunsOwnCallIsAnEdgeLikeAnyOther) {
  constexpr Addr kTwo = 0x402000, kOne = 0x402010;
  FlowFixture fixture;
  fixture.code(kTwo, {0xe8, 0x0b, 0x00, 0x00, 0x00, 0x90});  // call kOne; nop ...
  fixture.code(kOne, {0xe8, 0x0b, 0x00, 0x00, 0x00, 0x90});  // call a return; nop ...
  fixture.code(kOne + 0x10, {0xc3});
  RunCache cache(
      std::make_shared<CodeMap>(fixture.text(), TextAt::kAsof, std::vector<Addr>{}, CodeMap::Rules{}));
  const auto at = [&](Addr a) { return cache.at(fixture.stream.contexts.at(0).space, a, 64); };
  const RunId run = at(kTwo);
  ASSERT_EQ(cache.run(run).end, RunEnd::kRet);
  ASSERT_EQ(cache.run(run).call_count, 2);
  ASSERT_TRUE(cache.follow(run, 1));
  EXPECT_EQ(cache.run(run_of(cache.link(run).next[1])).ip, kOne + 5);
  EXPECT_EQ(Link::push(cache.link(run).effect), edge_to(at(kTwo + 5)));
}

// Three calls in a row before a decision: the last is in the link, the others are stored separately.
TEST(Links, SeveralCallsAreLeftInTheirOrder) {
  constexpr Addr kOne = 0x402000, kTwo = 0x402010, kThree = 0x402020, kLast = 0x402030;
  for (const bool indirect : {false, true}) {
    FlowFixture fixture;
    for (const Addr a : {kOne, kTwo, kThree}) fixture.code(a, {0xe8, 0x0b, 0x00, 0x00, 0x00, 0x90});
    if (indirect)
      fixture.code(kLast, {0xff, 0xe0});  // jmp *%rax
    else
      fixture.code(kLast, {0x74, 0x00, 0x90});  // je
    RunCache cache(
        std::make_shared<CodeMap>(fixture.text(), TextAt::kAsof, std::vector<Addr>{}, CodeMap::Rules{}));
    const auto at = [&](Addr a) { return cache.at(fixture.stream.contexts.at(0).space, a, 64); };
    const RunId run = at(kOne);
    ASSERT_EQ(cache.run(run).call_count, 3);
    ASSERT_TRUE(indirect ? cache.follow_indirect(run) : cache.follow(run, 1));
    const Edge index = cache.link(run).next[1];
    ASSERT_TRUE(is_multi_call(index));
    const Edge* const entry = MultiCallEdges::entry(cache.multi_call_edges(), index);
    EXPECT_EQ(MultiCallEdges::next(entry), indirect ? Edge::kIndirect : edge_to(at(kLast + 2)));
    const auto edges = MultiCallEdges::returns(entry);
    ASSERT_EQ(edges.size(), 2U);
    EXPECT_EQ(edges[0], edge_to(at(kOne + 5)));
    EXPECT_EQ(edges[1], edge_to(at(kTwo + 5)));
    EXPECT_EQ(Link::push(cache.link(run).effect), edge_to(at(kThree + 5)));
    ASSERT_TRUE(indirect ? cache.follow_indirect(run) : cache.follow(run, 1));
    EXPECT_EQ(cache.link(run).next[1], index) << "known: not created again";
  }
}

TEST(Links, WithoutRoomForSeveralCallsTheCarefulWalkDoesThem) {
  MultiCallEdges multi_call_edges;
  constexpr uint32_t kWords = std::to_underlying(Edge::kFirstRun);
  const std::vector<Edge> edges(1000, Edge::kFirstRun);
  Edge last = Edge::kNone, at = Edge::kNone;
  while ((at = multi_call_edges.add(Edge::kFirstRun, edges)) != Edge::kNone) {
    EXPECT_GT(at, last);
    ASSERT_LT(std::to_underlying(at) + 2 + edges.size(), kWords + 1);
    last = at;
  }
  EXPECT_GT(std::to_underlying(last), kWords / 2);
  EXPECT_EQ(multi_call_edges.add(Edge::kFirstRun, edges), Edge::kNone);
  const Edge* const entry = MultiCallEdges::entry(multi_call_edges.words(), last);
  EXPECT_EQ(MultiCallEdges::returns(entry).size(), edges.size());
}

TEST(SlotPage, ThreadsThatAddAnAddressGetOneSlot) {
  constexpr uint32_t kThreads = 4, kAddresses = 4096;
  SlotPage page;
  std::array<Arena, kThreads> arenas;
  std::vector<std::vector<const Slot*>> seen(kThreads);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (Addr ip = 0; ip < kAddresses; ++ip)
        seen[t].push_back(&page.add(0x7000 + ip, 1 + t * kAddresses + static_cast<uint32_t>(ip), arenas[t]));
    });
  }
  for (std::thread& t : threads) t.join();
  std::set<const Slot*> all(seen[0].begin(), seen[0].end());
  EXPECT_EQ(all.size(), kAddresses);
  for (uint32_t t = 1; t < kThreads; ++t) EXPECT_EQ(seen[t], seen[0]);
  for (Addr ip = 0; ip < kAddresses; ++ip) {
    const Slot* const slot = page.find(0x7000 + ip);
    ASSERT_EQ(slot, seen[0][ip]);
    EXPECT_EQ((slot->block() - 1) % kAddresses, ip);
    EXPECT_EQ(slot->run(), RunId::kNone);
  }
}

TEST(Slot, TheFirstRunStays) {
  Slot slot;
  ASSERT_TRUE(slot.take(0x1234, (1U << Slot::kBlockBits) - 1));
  EXPECT_FALSE(slot.take(0x1235, 7));
  EXPECT_TRUE(slot.take(0x1234, 7)) << "already taken by this address";
  constexpr RunId kHighest{RunTable::kMax - 1};
  EXPECT_EQ(slot.set_run(kHighest), kHighest);
  EXPECT_EQ(slot.set_run(RunId{5}), kHighest);
  EXPECT_EQ(slot.run(), kHighest);
  EXPECT_EQ(slot.block(), (1U << Slot::kBlockBits) - 1);
  EXPECT_TRUE(slot.is(0x1234));
  EXPECT_FALSE(slot.is(0x1230));
}

TEST(CodeMap, ThreadsFindTheSameRuns) {
  const Program p;
  constexpr int kThreads = 4;
  std::vector<std::vector<std::tuple<RunId, Edge, Edge>>> seen(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      RunCache cache(p.map);
      for (const Addr a : {kMain, kLoop, kJump, kCallee, kCallee + 2, kCallee + 3}) {
        const RunId run = p.at(cache, a);
        cache.follow(run, 0);
        cache.follow(run, 1);
        seen[t].emplace_back(run, cache.link(run).next[0], cache.link(run).next[1]);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (int t = 1; t < kThreads; ++t) EXPECT_EQ(seen[t], seen[0]);
}

// Against a plain stack of 64: pushes and pops of the careful walk, and what the fast walk writes to the
// entries that it borrows.
TEST(RetStack, IsAStackOf64WhoeverWritesIt) {
  const Program p;
  RunCache cache(p.map);
  const std::array<RunId, 3> runs = {p.at(cache, kMain), p.at(cache, kLoop), p.at(cache, kCallee)};
  const std::array<Space, 2> spaces = {cache.run(runs[0]).space, kKernelSpace};
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    asof::test::SimRandom random(seed);
    RetStack stack;
    std::deque<Addr> model;
    const auto push = [&](Addr a) {
      model.push_back(a);
      if (model.size() > RetStack::kSize) model.pop_front();
    };
    const bool deep = seed % 2 == 0;
    for (int i = 0; i < 600; ++i) {
      const uint64_t what = random.below(deep ? 40 : 100);
      if (what == 0) {
        Edge* const slots = stack.borrow(cache.map(), spaces[random.below(2)], 64);
        uint32_t newest = stack.newest(), most = newest;
        stack.make_places(newest);
        most = newest;
        for (uint64_t k = random.below(200); k > 0; --k) {
          const RunId run = runs[random.below(3)];
          slots[newest + 1] = edge_to(run);  // whether it is pushed or not
          if (random.below(2) == 0) continue;
          most = std::max(most, ++newest);
          push(cache.run(run).ip);
        }
        for (uint64_t k = random.below(most - newest + 30);
             k > 0 && slots[newest] != Edge::kNone && !model.empty(); --k) {
          --newest;
          model.pop_back();
        }
        stack.end_below(most);
        stack.restore(newest);
      } else if (what == 1) {
        stack.clear();
        model.clear();
      } else if (what < (deep ? 30 : 50)) {
        push(0x1000 + what);
        stack.push(0x1000 + what);
      } else {
        Addr a = 0;
        ASSERT_EQ(stack.pop(a), !model.empty()) << "seed " << seed;
        if (model.empty()) continue;
        ASSERT_EQ(a, model.back()) << "seed " << seed;
        model.pop_back();
      }
      ASSERT_EQ(stack.empty(), model.empty()) << "seed " << seed;
    }
  }
}

// What ran on an empty stack of its own, appended to the existing one: as if it had run there, as long as it
// did not return below that.
TEST(RetStack, AppendsWhatRanAbove) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    asof::test::SimRandom random(seed);
    RetStack stack, recent, direct;
    for (uint64_t i = random.below(80); i > 0; --i) {
      stack.push(i);
      direct.push(i);
    }
    uint64_t depth = 0, pushed = 0, most = 0;
    for (uint64_t i = random.below(300); i > 0; --i) {
      Addr a = 0;
      if (random.below(seed % 3 + 2) != 0) {
        recent.push(1000 + i);
        direct.push(1000 + i);
        depth = std::min<uint64_t>(depth + 1, RetStack::kSize);
        most = std::max(most, ++pushed);
      } else if (depth != 0) {
        recent.pop(a);
        direct.pop(a);
        --depth;
        --pushed;
      }
    }
    stack.append(recent, most);
    for (int i = 0; i < 70; ++i) {
      Addr a = 0, b = 0;
      ASSERT_EQ(stack.pop(a), direct.pop(b)) << "seed " << seed;
      ASSERT_EQ(a, b) << "seed " << seed;
    }
  }
}

TEST(RetStack, DigestsTellStacksApart) {
  RetStack a, b;
  for (const Addr x : {1, 2, 3}) a.push(x);
  for (const Addr x : {1, 3}) b.push(x);
  EXPECT_NE(a.digest(), b.digest());
  Addr out = 0;
  a.pop(out);
  b.pop(out);
  b.push(2);
  EXPECT_EQ(a.digest(), b.digest());
  a.clear();
  EXPECT_EQ(a.digest(), RetStack().digest());
}

}  // namespace
}  // namespace asof::x86::test
