// Random walks over functions whose stack is known at every instant, passed to the call tracker as a FlowReader
// would pass them, complete or with stretches left out, and what the tracker makes of them.
#pragma once
#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

#include "decoder/calls/call_tracker.h"
#include "tests/support/sim_random.h"
#include "textstore/builder.h"

namespace asof::test {

constexpr Addr kText = 0xffffffff81000000;
constexpr uint64_t kSize = 0x100;  // of a function
// Functions call later ones in their group; interrupts of the first and second level have a group each.
constexpr int kGroups = 3, kPerGroup = 8;

inline Capture capture_of_functions() {
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

inline void run(const Capture& capture, const Walk& walk, Collected& out) {
  TimelineOptions options;
  options.thread_tracks = false;
  CallTracker tracker(capture, options, false, out);
  for (const FlowOp& op : walk.ops.ops) tracker.op(0, walk.ops, op);
  tracker.finish();
}

}  // namespace asof::test
