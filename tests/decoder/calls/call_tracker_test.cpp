// CallTracker against a model: what it shows of walks whose stack is known at every instant. The depth of the
// walks is limited, so a tracker that exceeds the limit lets the stack grow at gaps.
#include "decoder/calls/call_tracker.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/decoder/calls/call_walk.h"

namespace asof::test {
namespace {

void expect_nested(const Collected& got, uint64_t instructions) {
  uint64_t self = 0;
  for (const auto& [id, s] : got.slices) {
    self += s.self_instructions;
    ASSERT_LE(s.begin, s.end);
    if (s.parent == 0) continue;
    ASSERT_TRUE(got.slices.contains(s.parent));
    const Slice& p = got.slices.at(s.parent);
    ASSERT_EQ(p.track, s.track);
    ASSERT_LE(p.begin, s.begin) << id;
    ASSERT_GE(p.end, s.end) << id;
    ASSERT_GE(p.instructions, s.instructions) << id;
  }
  EXPECT_EQ(self, instructions);
}

std::string words(const Collected& got, const std::vector<const Slice*>& chain, const Walk::Stack& stack) {
  std::string out = "got";
  for (auto s = chain.rbegin(); s != chain.rend(); ++s)
    out += fmt::format(" {}[{}]", got.names.at((*s)->function), slice_flag_names((*s)->flags));
  out += "; true";
  for (const auto& l : stack) out += fmt::format(" f{}", l.function);
  return out;
}

TEST(CallTracker, KnowsTheWholeStackWithoutGaps) {
  const Capture capture = capture_of_functions();
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const Walk walk(capture, seed, false);
    Collected got;
    run(capture, walk, got);
    expect_nested(got, walk.instructions);
    ASSERT_EQ(got.in.size(), walk.stacks.size());
    for (size_t i = 0; i < walk.stacks.size(); ++i) {
      const auto chain = got.chain(got.in.at(i));
      const auto& stack = walk.stacks[i];
      ASSERT_EQ(chain.size(), stack.size()) << seed << " " << i << words(got, chain, stack);
      for (size_t n = 0; n < stack.size(); ++n) {
        const Slice& s = *chain[chain.size() - 1 - n];
        ASSERT_EQ(got.names.at(s.function), fmt::format("f{}", stack[n].function))
            << words(got, chain, stack);
        ASSERT_EQ(s.call_site, stack[n].site) << words(got, chain, stack);
        ASSERT_EQ((s.flags & Slice::kAsync) != 0, stack[n].async) << words(got, chain, stack);
      }
    }
    for (const auto& [id, s] : got.slices)
      ASSERT_EQ(s.flags & (Slice::kSkipped | Slice::kUnbalanced | Slice::kAcrossGap), 0U);
  }
}

// How many of the frames shown, innermost first, are on the true stack, in that order.
uint64_t true_frames(const Collected& got, const std::vector<const Slice*>& chain, const Walk::Stack& stack) {
  uint64_t found = 0;
  size_t above = stack.size();
  for (const Slice* s : chain) {
    for (size_t n = above; n-- > 0;) {
      if (got.names.at(s->function) != fmt::format("f{}", stack[n].function)) continue;
      above = n;
      ++found;
      break;
    }
  }
  return found;
}

// What was seen of a stack is right; what was guessed is marked, and mostly right.
TEST(CallTracker, NoStaircaseAfterGaps) {
  const Capture capture = capture_of_functions();
  uint64_t gaps = 0, sure = 0, shown = 0, found = 0, there = 0, roots = 0;
  size_t deepest = 0, true_deepest = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Walk walk(capture, seed, true);
    Collected got;
    run(capture, walk, got);
    gaps += got.gaps;
    for (const auto& [id, s] : got.slices) roots += got.names.at(s.function) == "f0";
    expect_nested(got, walk.instructions);
    ASSERT_EQ(got.in.size(), walk.stacks.size());
    for (size_t i = 0; i < walk.stacks.size(); ++i) {
      const auto chain = got.chain(got.in.at(i));
      const auto& stack = walk.stacks[i];
      ASSERT_FALSE(chain.empty());
      shown += chain.size();
      found += true_frames(got, chain, stack);
      there += stack.size();
      deepest = std::max(deepest, chain.size());
      true_deepest = std::max(true_deepest, stack.size());
      constexpr uint32_t kGuess = Slice::kAcrossGap | Slice::kBeganBefore | Slice::kUnbalanced;
      for (size_t n = 0; n < chain.size(); ++n) {
        if (n != 0 && (chain[n]->flags & kGuess) != 0) break;
        ASSERT_LT(n, stack.size()) << seed << " " << i << " " << words(got, chain, stack);
        ASSERT_EQ(got.names.at(chain[n]->function), fmt::format("f{}", stack[stack.size() - 1 - n].function))
            << seed << " " << i << " " << words(got, chain, stack);
        ++sure;
        if ((chain[n]->flags & kGuess) != 0) break;
      }
    }
  }
  // Walks with hundreds of gaps: if each gap added a frame, the stack would be too deep.
  EXPECT_LE(deepest, true_deepest);
  EXPECT_GT(gaps, 1000U);
  EXPECT_GT(sure, 100'000U);
  EXPECT_GT(found * 100, shown * 97) << "of " << shown;
  EXPECT_GT(found * 100, there * 96) << "of " << there;
  // The outermost function never ends. It may be cut only if two losses follow each other before the flow
  // returns to it.
  EXPECT_LT(roots, gaps / 4);
}

// Ops of functions by name, as a FlowReader gives them.
class Ops {
 public:
  explicit Ops(const Capture& capture) : capture_(capture) {}
  static Addr at(int function, Addr offset = 0) {
    return kText + static_cast<Addr>(function) * kSize + offset;
  }
  Ops& add(FlowOp::Kind kind, Addr from, Addr to, BranchKind branch = BranchKind::kNone) {
    FlowOp& op = ops_.ops.emplace_back();
    op.kind = kind;
    op.branch = branch;
    op.from = from;
    op.to = to;
    op.back = from + 5;
    op.left = symbol(from);
    op.symbol = symbol(to != 0 ? to : from);
    op.instructions = 1;
    return *this;
  }
  Ops& starts(Addr to) { return add(FlowOp::Kind::kStart, 0, to).add(FlowOp::Kind::kEntry, 0, to); }
  Ops& interrupted(Addr at) { return add(FlowOp::Kind::kAsync, at, 0).add(FlowOp::Kind::kStop, at, 0); }
  Collected slices() const {
    Collected got;
    TimelineOptions options;
    options.thread_tracks = false;
    CallTracker tracker(capture_, options, false, got);
    for (const FlowOp& op : ops_.ops) tracker.op(0, ops_, op);
    tracker.finish();
    return got;
  }

 private:
  const Symbol* symbol(Addr a) const {
    const auto found = a == 0 ? std::nullopt : capture_.symbols.find(kKernelSpace, a, 0);
    return found ? found->symbol : nullptr;
  }
  const Capture& capture_;
  FlowOps ops_;
};

// Of what was traced: "<function> in <its caller> <signal>".
std::vector<std::string> shown(const Collected& got) {
  std::vector<std::string> out;
  for (const auto& [id, s] : got.slices) {
    const std::string& name = got.names.at(s.function);
    if (name == "(not traced)") continue;
    out.push_back(fmt::format("{} in {} {}", name,
                              s.parent == 0 ? "-" : got.names.at(got.slices.at(s.parent).function),
                              (s.flags & Slice::kSignal) != 0 ? "signal" : ""));
  }
  std::ranges::sort(out);
  return out;
}

// A page fault in front of the first instruction of a function, of which the handler is not traced.
TEST(CallTracker, InterruptOfAFunctionsFirstInstructionIsNoSecondCall) {
  const Capture capture = capture_of_functions();
  Ops ops(capture);
  ops.starts(Ops::at(1, 8)).add(FlowOp::Kind::kCall, Ops::at(1, 16), Ops::at(2), BranchKind::kCall);
  ops.interrupted(Ops::at(2))
      .starts(Ops::at(2))
      .add(FlowOp::Kind::kReturn, Ops::at(2, 8), Ops::at(1, 21), BranchKind::kRet);
  const std::vector<std::string> wanted = {"f1 in - ", "f2 in f1 "};
  EXPECT_EQ(shown(ops.slices()), wanted);
}

// The very first instruction of the trace, twice.
TEST(CallTracker, InterruptedStartIsOneCall) {
  const Capture capture = capture_of_functions();
  Ops ops(capture);
  ops.starts(Ops::at(1))
      .interrupted(Ops::at(1))
      .starts(Ops::at(1))
      .interrupted(Ops::at(1))
      .starts(Ops::at(1));
  EXPECT_EQ(shown(ops.slices()), std::vector<std::string>{"f1 in - "});
}

// What resumes at the start of another function is a signal's handler; of itself, too, when it was further on.
TEST(CallTracker, ResumingAtAnotherStartIsASignal) {
  const Capture capture = capture_of_functions();
  Ops ops(capture);
  ops.starts(Ops::at(1))
      .interrupted(Ops::at(1, 8))
      .starts(Ops::at(3))
      .interrupted(Ops::at(3, 8))
      .starts(Ops::at(3));
  const std::vector<std::string> wanted = {"f1 in - ", "f3 in f1 signal", "f3 in f3 signal"};
  EXPECT_EQ(shown(ops.slices()), wanted);
}

// An address filter on f1 alone, which calls f2 and is called repeatedly by code that is not traced.
TEST(CallTracker, FilteredFunctionsDoNotPileUp) {
  const Capture capture = capture_of_functions();
  Ops ops(capture);
  for (int i = 0; i < 100; ++i) {
    ops.starts(Ops::at(1)).add(FlowOp::Kind::kStop, Ops::at(1, 8), 0, BranchKind::kCall);
    ops.starts(Ops::at(1, 13)).add(FlowOp::Kind::kStop, Ops::at(1, 20), 0, BranchKind::kRet);
  }
  const Collected got = ops.slices();
  size_t entered = 0;
  for (const auto& [id, s] : got.slices) {
    if (got.names.at(s.function) != "f1") continue;
    ++entered;
    EXPECT_EQ(s.parent, 0U) << id;
  }
  EXPECT_EQ(entered, 100U);
}

}  // namespace
}  // namespace asof::test
