// Runs of A64 code in isolation: where they end, where their links lead, what is left to the careful walk,
// that decoders which share them agree; and the return stack that the fast walk writes alongside.
#include "arch/arm64/runs.h"
#include "arch/arm64/patch_rules.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <thread>
#include <vector>

#include "arch/arm64/state.h"
#include "tests/support/etm_asm.h"
#include "tests/support/sim_random.h"
#include "textstore/builder.h"

namespace asof::arm64 {
namespace {

using namespace asof::test;

constexpr Addr kText = 0xffff800010000000;
constexpr Addr at(unsigned word) { return kText + 4 * word; }

// 0: add add cbz 4   3: bl 8   4: ret   5: blr x1   6: isb   7: wfi   8: nop b 0   10: brk   11: eret   12:
// nop(changes)
std::vector<uint32_t> words() {
  return {a64::straight(0),
          a64::straight(1),
          a64::cbz(at(2), at(4), 3),
          a64::bl(at(3), at(8)),
          a64::kRet,
          a64::blr(1),
          a64::kIsb,
          a64::kWfi,
          a64::kNop,
          a64::b(at(9), at(0)),
          a64::brk(4),
          a64::kEret,
          a64::kNop,
          a64::kRet};
}

struct Program {
  std::vector<uint8_t> bytes, old_bytes = a64::bytes_of(a64::kNop),
                              new_bytes = a64::bytes_of(a64::b(at(12), at(0)));
  std::optional<TextStore> text;

  explicit Program(const std::vector<uint32_t>& code = words()) : bytes(a64::bytes_of(code)) {
    Builder builder;
    builder.set_patch_rules(arm64::kPatchRules);
    Layer layer;
    layer.range = range_of(kText, bytes.size());
    layer.bytes = bytes;
    builder.add_layer(layer);
    if (code.size() > 12) {
      Poke poke;
      poke.addr = at(12);
      poke.time = 1000;
      poke.old_bytes = old_bytes;
      poke.new_bytes = new_bytes;
      builder.add_poke(poke);
    }
    text.emplace(std::move(builder).build());
  }
  std::shared_ptr<CodeMap> map(const RunRules& rules = {}) const {
    return std::make_shared<CodeMap>(*text, rules);
  }
};

Edge next(const RunCache& runs, RunId run, unsigned atom) { return runs.link(run).next[atom]; }

TEST(RunsArm64, EndAtTheNextWaypoint) {
  const Program p;
  RunCache runs(p.map({.wfx = true}));
  const RunId first = runs.at(kKernelSpace, at(0));
  EXPECT_EQ(runs.at(kKernelSpace, at(0)), first);
  EXPECT_EQ(runs.table()[first].instructions, 3U);
  EXPECT_EQ(runs.table()[first].size, 1U);
  EXPECT_EQ(runs.run(first).ip, at(0));
  EXPECT_EQ(runs.run(first).end_ip(), at(3));
  EXPECT_EQ(runs.run(first).target(), at(4));
  const auto end = [&](unsigned word) { return runs.run(runs.at(kKernelSpace, at(word))).end; };
  EXPECT_EQ(end(0), RunEnd::kDirect);
  EXPECT_EQ(end(3), RunEnd::kDirect);
  EXPECT_EQ(end(4), RunEnd::kIndirect);
  EXPECT_EQ(end(6), RunEnd::kSync);
  EXPECT_EQ(end(7), RunEnd::kWait);
  EXPECT_EQ(end(8), RunEnd::kDirect);
  EXPECT_EQ(end(10), RunEnd::kStop) << "a breakpoint";
  EXPECT_EQ(end(11), RunEnd::kExceptionReturn);
  EXPECT_EQ(end(12), RunEnd::kStop) << "text that changes";
  EXPECT_EQ(runs.at(kKernelSpace, at(0) + 2), RunId::kNone) << "no A64 instruction begins there";
  EXPECT_EQ(runs.at(kKernelSpace, 0xffff900000000000), RunId::kNone) << "no text, no memory for it";
}

TEST(RunsArm64, LinksSayWhereAnAtomLeads) {
  const Program p;
  RunCache runs(p.map({.return_stack = true}));
  const RunId cond = runs.at(kKernelSpace, at(0)), call = runs.at(kKernelSpace, at(3));
  const RunId ret = runs.at(kKernelSpace, at(4));
  EXPECT_EQ(next(runs, cond, 0), Edge::kUnknown);
  EXPECT_NE(runs.follow(cond, 0), Edge::kUnknown);
  EXPECT_NE(runs.follow(cond, 1), Edge::kUnknown);
  EXPECT_EQ(next(runs, cond, 0), edge_to(call));
  EXPECT_EQ(next(runs, cond, 1), edge_to(ret));
  EXPECT_EQ(runs.link(cond).push, Edge::kNone);
  EXPECT_NE(runs.follow(call, 1), Edge::kUnknown);
  EXPECT_EQ(next(runs, call, 1), edge_to(runs.at(kKernelSpace, at(8))));
  EXPECT_EQ(runs.link(call).push, edge_to(ret));
  EXPECT_EQ(runs.follow(call, 0), Edge::kUnknown) << "a call is never passed";
  EXPECT_EQ(next(runs, call, 0), Edge::kUnknown);
  EXPECT_EQ(next(runs, ret, 1), Edge::kReturn);
  EXPECT_EQ(next(runs, ret, 0), Edge::kUnknown);
  EXPECT_EQ(runs.follow(ret, 1), Edge::kUnknown);
  const RunId blr = runs.at(kKernelSpace, at(5));
  EXPECT_EQ(next(runs, blr, 1), Edge::kUnknown) << "what it pushes is not known yet";
  EXPECT_NE(runs.follow(blr, 1), Edge::kUnknown);
  EXPECT_EQ(next(runs, blr, 1), Edge::kIndirect);
  EXPECT_EQ(runs.link(blr).push, edge_to(runs.at(kKernelSpace, at(6))));
  EXPECT_EQ(runs.follow(runs.at(kKernelSpace, at(6)), 1), Edge::kUnknown) << "an ISB is more than an edge";
  EXPECT_EQ(runs.follow(runs.at(kKernelSpace, at(11)), 1), Edge::kUnknown) << "so is an ERET";
  EXPECT_EQ(runs.follow(runs.at(kKernelSpace, at(12)), 1), Edge::kUnknown);
}

TEST(RunsArm64, WithoutReturnStackNothingIsPushed) {
  const Program p;
  RunCache runs(p.map());
  const RunId call = runs.at(kKernelSpace, at(3));
  EXPECT_NE(runs.follow(call, 1), Edge::kUnknown);
  EXPECT_EQ(runs.link(call).push, Edge::kNone);
  EXPECT_EQ(next(runs, runs.at(kKernelSpace, at(4)), 1), Edge::kIndirect);
  EXPECT_EQ(next(runs, runs.at(kKernelSpace, at(5)), 1), Edge::kIndirect);
}

TEST(RunsArm64, NoEdgeReturnsToTheHook) {
  const Program p;
  RunCache runs(p.map({.return_stack = true, .hook = at(4)}));
  EXPECT_EQ(runs.follow(runs.at(kKernelSpace, at(3)), 1), Edge::kUnknown);
  EXPECT_EQ(runs.back_at(kKernelSpace, at(4)), RunId::kNone);
  EXPECT_NE(runs.back_at(kKernelSpace, at(5)), RunId::kNone);
  EXPECT_EQ(runs.back_at(kKernelSpace, 0x400000), RunId::kNone) << "the other half of the address space";
}

TEST(RunsArm64, OneStateOfTheText) {
  const Program p;
  for (const TextAt which : {TextAt::kFirst, TextAt::kLast}) {
    RunCache runs(p.map({.text_at = which}));
    const FlowRun& run = runs.run(runs.at(kKernelSpace, at(12)));
    EXPECT_EQ(run.end, which == TextAt::kFirst ? RunEnd::kIndirect : RunEnd::kDirect);
  }
}

TEST(RunsArm64, WhatMayHaveChangedUnseenIsNotCertain) {
  const Program p;
  RunCache all(p.map({.unrecorded_changes = true}));
  EXPECT_EQ(all.table()[all.at(kKernelSpace, at(0))].confidence, Confidence::kAmbiguous);
  EXPECT_EQ(all.run(all.at(kKernelSpace, at(0))).end, RunEnd::kDirect);
  // Where only part of it may have changed, what follows that part is left to the careful walk.
  RunCache some(p.map({.unrecorded_changes = true, .complete = {at(3), at(5)}}));
  EXPECT_EQ(some.run(some.at(kKernelSpace, at(0))).end, RunEnd::kStop);
  EXPECT_EQ(some.run(some.at(kKernelSpace, at(3))).end, RunEnd::kDirect);
  EXPECT_EQ(some.table()[some.at(kKernelSpace, at(3))].confidence, Confidence::kCertain);
  RunCache lost(p.map({.all_unsure = true}));
  EXPECT_EQ(lost.table()[lost.at(kKernelSpace, at(3))].confidence, Confidence::kAmbiguous);
}

// Four blocks, then it is left to the careful walk.
TEST(RunsArm64, StraightCodeWithoutEnd) {
  std::vector<uint32_t> code;
  for (unsigned i = 0; i < 1100; ++i) code.push_back(a64::straight(i % a64::kStraightKinds));
  code.push_back(a64::kRet);
  code[12] = a64::kNop;
  const Program p(code);
  RunCache runs(p.map({.text_at = TextAt::kFirst}));
  EXPECT_EQ(runs.run(runs.at(kKernelSpace, at(0))).end, RunEnd::kStop);
  const RunId run = runs.at(kKernelSpace, at(500));
  EXPECT_EQ(runs.run(run).end, RunEnd::kIndirect);
  EXPECT_EQ(runs.table()[run].instructions, 601U);
  EXPECT_EQ(runs.table()[run].size, 3U);
  uint64_t hash = 0;
  for (unsigned i = 500; i <= 1100; ++i) hash = hash * kHashFactor + at(i);
  EXPECT_EQ(runs.table()[run].hash, hash);
}

TEST(RunsArm64, DecodersThatShareThemAgree) {
  const Program p;
  const auto map = p.map({.return_stack = true});
  std::array<std::vector<RunId>, 4> found;
  std::vector<std::thread> threads;
  for (auto& mine : found) {
    threads.emplace_back([&mine, &map] {
      RunCache runs(map);
      for (unsigned i = 0; i < 14; ++i) {
        mine.push_back(runs.at(kKernelSpace, at(i)));
        runs.follow(mine.back(), 0);
        runs.follow(mine.back(), 1);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (const auto& other : found) EXPECT_EQ(other, found[0]);
}

TEST(RunsArm64, PlainWordsAreNoWaypoints) {
  SimRandom random(1);
  unsigned plain = 0;
  for (int i = 0; i < 2'000'000; ++i) {
    const auto w = static_cast<uint32_t>(random.below(uint64_t{1} << 32));
    if (!is_plain_a64(w)) continue;
    ++plain;
    Insn insn;
    decode_insn(a64::bytes_of(w), kText, kA64, true, insn);
    ASSERT_EQ(insn.waypoint, Waypoint::kNone) << std::hex << w;
    ASSERT_EQ(insn.kind, BranchKind::kNone) << std::hex << w;
  }
  EXPECT_GT(plain, 1'000'000U);
}

// Edges and addresses in one stack: it returns what a list would.
void stack_is_a_list(uint64_t seed, size_t most) {
  const Program p;
  const auto map = p.map({.return_stack = true});
  RunCache runs(map);
  SimRandom random(seed);
  RetStack stack;
  std::vector<Addr> list;
  for (int i = 0; i < 20'000; ++i) {
    const Addr a = at(static_cast<unsigned>(random.below(14)));
    const uint64_t what = list.size() < most ? random.below(4) : 2;
    if (what == 0) {
      stack.push(a, kA64);
      list.push_back(a);
    } else if (what == 1) {
      Edge* const ring = stack.borrow(*map, kKernelSpace);
      const uint64_t top = stack.newest() + 1;
      ring[top % RetStack::kRing] = edge_to(runs.at(kKernelSpace, a));
      ring[(top - RetStack::kSize) % RetStack::kRing] = Edge::kNone;
      stack.restore(top);
      list.push_back(a);
    } else if (what == 2 || random.chance(90)) {
      Addr got = 0;
      uint8_t mode = kA64;
      ASSERT_EQ(stack.pop(got, mode), !list.empty());
      if (!list.empty()) {
        ASSERT_EQ(got, list.back());
        list.pop_back();
      }
    } else {
      stack.clear();
      list.clear();
    }
    if (list.size() > RetStack::kSize) list.erase(list.begin());
    if (most > RetStack::kSize) continue;  // what was dropped stays in the digest
    RetStack plain;
    for (const Addr entry : list) plain.push(entry, kA64);
    ASSERT_EQ(stack.digest(), plain.digest());
  }
}

TEST(RetStackArm64, HoldsEdgesBesideAddresses) { stack_is_a_list(2, RetStack::kSize); }

TEST(RetStackArm64, TheOldestFallsOut) { stack_is_a_list(3, 2 * size_t{RetStack::kSize}); }

}  // namespace
}  // namespace asof::arm64
