// CallTracker against a model: random walks over functions whose stack is known at every instant, passed to
// the tracker as a FlowReader would pass them, complete or with stretches left out. The depth of the walks is
// limited, so a tracker that exceeds the limit lets the stack grow at gaps.
#include "decoder/calls/call_tracker.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>
#include <vector>

#include "tests/support/sim_random.h"
#include "textstore/builder.h"

namespace asof::test {
namespace {

constexpr Addr kText = 0xffffffff81000000;
constexpr uint64_t kSize = 0x100;  // of a function
// Functions call later ones in their group; interrupts of the first and second level have a group each.
constexpr int kGroups = 3, kPerGroup = 8;

Capture capture_of_functions() {
  Capture c;
  c.machine = "x86_64";
  for (int i = 0; i < kGroups * kPerGroup; ++i) {
    Symbol s;
    s.range = {kText + static_cast<uint64_t>(i) * kSize, kText + static_cast<uint64_t>(i + 1) * kSize};
    s.name = fmt::format("f{}", i);
    s.dso = "[kernel.kallsyms]";
    c.symbols.add(std::move(s));
  }
  c.symbols.finish();
  c.text.emplace(Builder().build());
  Stream s;
  s.cpu = 0;
  c.streams.push_back(s);
  return c;
}

class Walk {
 public:
  struct Level {
    int function = 0;
    Addr site = 0, back = 0;
    bool async = false;
  };
  using Stack = std::vector<Level>;

  Walk(const Capture& capture, uint64_t seed, bool gaps) : capture_(capture), random_(seed), gaps_(gaps) {
    stack_.push_back({0, 0, 0, false});
    at_ = start(0);
    entry(0);
    block();
    for (int i = 0; i < 3000; ++i) step();
  }

  FlowOps ops;
  std::vector<Stack> stacks;  // at each block; its piece's address is the index
  uint64_t instructions = 0;

 private:
  static Addr start(int function) { return kText + static_cast<uint64_t>(function) * kSize; }
  const Symbol* symbol(Addr a) const { return capture_.symbols.find(kKernelSpace, a, 0)->symbol; }
  Level& top() { return stack_.back(); }

  FlowOp& add(FlowOp::Kind kind) {
    FlowOp& op = ops.ops.emplace_back();
    op.kind = kind;
    return op;
  }
  void entry(uint8_t flags) {
    if (silent_) return;
    FlowOp& op = add(FlowOp::Kind::kEntry);
    op.to = at_;
    op.symbol = symbol(at_);
    op.flags = flags;
  }
  void block() {
    if (silent_) return;
    FlowOp& op = add(FlowOp::Kind::kBlock);
    op.item = static_cast<uint32_t>(ops.pieces.size());
    op.instructions = static_cast<uint32_t>(random_.below(4));
    instructions += op.instructions;
    FlowPiece piece;
    piece.ip = stacks.size();
    ops.pieces.push_back(piece);
    stacks.push_back(stack_);
  }
  // The branch at at_ went to `to`; sometimes followed by the end of a chunk.
  void branch(FlowOp::Kind kind, BranchKind branch, Addr to) {
    const Addr from = at_;
    at_ = to;
    if (silent_) return;
    const bool cut = random_.chance(10);
    FlowOp& op = add(cut ? FlowOp::Kind::kExit : kind);
    op.branch = branch;
    op.from = from;
    op.back = from + 5;
    op.left = symbol(from);
    op.symbol = op.left;
    if (cut) return entry(0);
    op.to = to;
    op.symbol = symbol(to);
  }
  int later() {
    const int group = top().function / kPerGroup, last = group * kPerGroup + kPerGroup - 1;
    if (top().function == last) return -1;
    return static_cast<int>(
        random_.between(static_cast<uint64_t>(top().function) + 1, static_cast<uint64_t>(last)));
  }
  void move() { at_ = start(top().function) + 8 + random_.below(kSize - 16); }

  void call() {
    const int to = later();
    if (to < 0) return leave();
    const Addr site = at_;
    stack_.push_back({to, site, site + 5, false});
    branch(FlowOp::Kind::kCall, BranchKind::kCall, start(to));
  }
  void tail() {
    const int to = later();
    if (to < 0 || top().async || stack_.size() == 1) return;
    top().function = to;
    branch(FlowOp::Kind::kJump, BranchKind::kJump, start(to));
  }
  void leave() {
    if (stack_.size() == 1) return;
    const Level left = top();
    stack_.pop_back();
    branch(left.async ? FlowOp::Kind::kFarReturn : FlowOp::Kind::kReturn,
           left.async ? BranchKind::kFarRet : BranchKind::kRet, left.back);
  }
  void interrupt() {
    const int group = top().function / kPerGroup + 1;
    if (group == kGroups) return;
    const Addr from = at_;
    stack_.push_back({group * kPerGroup, from, from, true});
    at_ = start(group * kPerGroup);
    if (silent_) return;
    FlowOp& op = add(FlowOp::Kind::kAsync);
    op.from = op.back = from;
    op.to = at_;
    entry(Step::kAsyncEntry);
  }
  void lose() {
    FlowOp& op = add(FlowOp::Kind::kGap);
    op.item = static_cast<uint32_t>(ops.gaps.size());
    ops.gaps.emplace_back();
    silent_ = true;
    for (uint64_t n = random_.below(60); n != 0; --n) step();
    silent_ = false;
    move();
    entry(Step::kAfterGap);
    block();
  }
  void step() {
    move();
    const uint64_t what = random_.below(100);
    if (what < 40) {
      call();
    } else if (what < 80) {
      leave();
    } else if (what < 88) {
      tail();
    } else if (what < 94) {
      interrupt();
    } else if (gaps_ && !silent_ && what < 96) {
      return lose();
    }
    block();
  }

  const Capture& capture_;
  SimRandom random_;
  bool gaps_, silent_ = false;
  Stack stack_;
  Addr at_ = 0;
};

struct Collected : TimelineSink {
  void function(const TimelineFunction& f) override { names[f.id] = f.name; }
  void slice(const Slice& s) override { slices[s.id] = s; }
  void block(const BlockSlice& b) override { in[b.piece.ip] = b.in; }
  void gap(const GapSlice&) override { ++gaps; }

  // Outermost last.
  std::vector<const Slice*> chain(uint64_t id) const {
    std::vector<const Slice*> out;
    for (; id != 0 && out.size() < 100; id = slices.at(id).parent) out.push_back(&slices.at(id));
    return out;
  }

  std::map<uint32_t, std::string> names;
  std::map<uint64_t, Slice> slices;
  std::map<uint64_t, uint64_t> in;
  uint64_t gaps = 0;
};

void run(const Capture& capture, const Walk& walk, Collected& out) {
  TimelineOptions options;
  options.thread_tracks = false;
  CallTracker tracker(capture, options, false, out);
  for (const FlowOp& op : walk.ops.ops) tracker.op(0, walk.ops, op);
  tracker.finish();
}

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

// An address filter on f1 alone, which calls f2 and is called repeatedly by code that is not traced.
TEST(CallTracker, FilteredFunctionsDoNotPileUp) {
  const Capture capture = capture_of_functions();
  FlowOps ops;
  constexpr Addr f1 = kText + kSize;
  const Symbol* symbol = capture.symbols.find(kKernelSpace, f1, 0)->symbol;
  const auto add = [&](FlowOp::Kind kind, Addr from, Addr to, BranchKind branch = BranchKind::kNone) {
    FlowOp& op = ops.ops.emplace_back();
    op.kind = kind;
    op.branch = branch;
    op.from = from;
    op.to = to;
    op.back = from + 5;
    op.left = op.symbol = symbol;
    op.instructions = 1;
  };
  for (int i = 0; i < 100; ++i) {
    add(FlowOp::Kind::kStart, 0, f1);
    add(FlowOp::Kind::kEntry, 0, f1);
    add(FlowOp::Kind::kStop, f1 + 8, 0, BranchKind::kCall);
    add(FlowOp::Kind::kStart, 0, f1 + 13);
    add(FlowOp::Kind::kEntry, 0, f1 + 13);
    add(FlowOp::Kind::kStop, f1 + 20, 0, BranchKind::kRet);
  }
  Collected got;
  TimelineOptions options;
  options.thread_tracks = false;
  CallTracker tracker(capture, options, false, got);
  for (const FlowOp& op : ops.ops) tracker.op(0, ops, op);
  tracker.finish();
  size_t entered = 0;
  for (const auto& [id, s] : got.slices) {
    if (got.names.at(s.function) != "f1") continue;
    ++entered;
    EXPECT_EQ(s.parent, 0U) << id;
  }
  EXPECT_EQ(entered, 100U);
}

// Records that contradict each other: a thread is on two CPUs at once, also while one of them has lost the flow.
TEST(CallTracker, ThreadThatTwoCpusRunAtOnce) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    constexpr size_t kCpus = 3;
    SimRandom random(seed);
    Capture capture = capture_of_functions();
    capture.streams.resize(kCpus, capture.streams[0]);
    std::vector<Walk> walks;
    uint64_t instructions = 0;
    for (size_t i = 0; i < kCpus; ++i) {
      Stream& s = capture.streams[i];
      s.cpu = static_cast<int>(i);
      for (Time t = 0; t < 9'000; t += static_cast<Time>(random.between(1, 400))) {
        const auto tid = static_cast<int32_t>(random.between(1, 3));
        s.contexts.push_back({.time = t, .pid = tid, .tid = tid, .space = kNoSpace});
      }
      walks.emplace_back(capture, seed * kCpus + i, true);
      instructions += walks.back().instructions;
    }
    Collected got;
    CallTracker tracker(capture, {}, true, got);
    std::array<size_t, kCpus> next{};
    for (Time now = 0;; ++now) {
      std::vector<size_t> left;
      for (size_t i = 0; i < kCpus; ++i) {
        if (next[i] < walks[i].ops.ops.size()) left.push_back(i);
      }
      if (left.empty()) break;
      const size_t cpu = left[random.below(left.size())];
      FlowOp op = walks[cpu].ops.ops[next[cpu]++];
      op.time = now;
      tracker.op(cpu, walks[cpu].ops, op);
    }
    tracker.finish();
    EXPECT_GT(got.gaps, 0U);
    uint64_t self = 0;  // on the CPUs' tracks
    for (const auto& [id, s] : got.slices) {
      ASSERT_LE(s.begin, s.end);
      if (s.track < kCpus) self += s.self_instructions;
      if (s.parent == 0) continue;
      ASSERT_TRUE(got.slices.contains(s.parent));
      ASSERT_EQ(got.slices.at(s.parent).track, s.track);
    }
    EXPECT_GT(self, 0U);
    EXPECT_LE(self, instructions);
  }
}

// Two switch records say that one thread is on two CPUs. What it leaves unfinished on the first, frames from
// before a loss included, ends there: CPU 1 has no thread yet, or has one that none of this is of.
void expect_taken_away(bool per_thread) {
  Capture capture = capture_of_functions();
  capture.streams.resize(2);
  for (size_t i = 0; i < 2; ++i) {
    capture.streams[i].cpu = per_thread ? -1 : static_cast<int32_t>(i);
    capture.streams[i].tid = per_thread ? 10 : -1;
    if (!per_thread)
      capture.streams[i].contexts.push_back({.time = 0, .pid = 10, .tid = 10, .space = kNoSpace});
  }
  FlowOps ops;
  ops.gaps.resize(1);
  const auto add = [&](FlowOp::Kind kind, Time time, int to) -> FlowOp& {
    FlowOp& op = ops.ops.emplace_back();
    op.kind = kind;
    op.time = time;
    op.to = kText + static_cast<Addr>(to) * kSize;
    op.symbol = capture.symbols.find(kKernelSpace, op.to, 0)->symbol;
    op.instructions = 1;
    return op;
  };
  add(FlowOp::Kind::kEntry, 100, 1);
  add(FlowOp::Kind::kCall, 110, 2).back = kText + kSize + 8;
  add(FlowOp::Kind::kGap, 120, 0);
  add(FlowOp::Kind::kEntry, 130, 9);
  add(FlowOp::Kind::kGap, 140, 0);
  Collected got;
  const TimelineOptions options;
  CallTracker tracker(capture, options, true, got);
  for (const FlowOp& op : ops.ops) tracker.op(0, ops, op);
  FlowOp& other = add(FlowOp::Kind::kEntry, 150, 17);
  tracker.op(1, ops, other);
  tracker.op(0, ops, add(FlowOp::Kind::kEntry, 160, 3));
  tracker.op(1, ops, add(FlowOp::Kind::kCall, 170, 18));
  tracker.finish();
  std::map<std::string, std::set<uint32_t>> tracks;
  for (const auto& [id, s] : got.slices) {
    const std::string& name = got.names.at(s.function);
    tracks[name].insert(s.track);
    if (!per_thread) {
      EXPECT_EQ(s.cpu, name == "f17" || name == "f18" ? 1 : 0) << name;
    }
  }
  for (const char* name : {"f1", "f2", "f9", "f17", "f18"}) EXPECT_FALSE(tracks[name].empty()) << name;
  // What the first goes on with is another thread, which is unknown.
  for (const uint32_t track : tracks["f3"]) EXPECT_FALSE(tracks["f17"].contains(track));
}

TEST(CallTracker, AThreadTakenAwayEndsOnItsOwnCpu) { expect_taken_away(false); }
TEST(CallTracker, TwoTracesOfOneThread) { expect_taken_away(true); }

}  // namespace
}  // namespace asof::test
