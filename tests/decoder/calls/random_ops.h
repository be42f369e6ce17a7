// Ops as a FlowReader might give them of any program, and of none: calls that return, longjmp, retpolines, return thunks,
// tail calls, probes' slots, interrupts, system calls, switches of threads, losses, times that go back.
#pragma once
#include <fmt/format.h>

#include <string>
#include <vector>

#include "decoder/calls/flow_ops.h"
#include "decoder/model/capture.h"
#include "tests/support/sim_random.h"
#include "textstore/builder.h"

namespace asof::test {

struct RandomOpsOptions {
  size_t streams = 1;
  bool time = true;
  bool switcher = false;    // the kernel names the instruction that exchanges stacks
  bool contradict = false;  // switch records of two CPUs contradict each other
  unsigned odd = 8;         // percent of what no compiler makes
  size_t ops = 1500;        // of each stream
  size_t deep = 0;          // calls without returns come first
};

inline constexpr Addr kRandomKernel = 0xffffffff81000000, kRandomUser = 0x401000;
inline constexpr uint64_t kRandomSize = 0x40;

inline Capture random_capture(const RandomOpsOptions& o, SimRandom& random) {
  Capture c;
  c.machine = "x86_64";
  Addr at = kRandomKernel;
  const auto add = [&](const std::string& name, Space space, const char* dso) {
    Symbol s;
    s.space = space;
    s.range = {at, at + kRandomSize};
    s.name = name;
    s.dso = dso;
    c.symbols.add(std::move(s));
    at += kRandomSize;
  };
  for (int i = 0; i < 12; ++i) add(fmt::format("k{}", i), kKernelSpace, "[kernel.kallsyms]");
  for (const char* name : {"__x86_return_thunk", "__x86_indirect_thunk_rax", "kprobe_insn_page", "k3.cold"})
    add(name, kKernelSpace, "[kernel.kallsyms]");
  if (o.switcher) add("__switch_to_asm", kKernelSpace, "[kernel.kallsyms]");
  at = kRandomUser;
  for (int i = 0; i < 6; ++i) add(fmt::format("u{}", i), 1, "prog");
  c.symbols.finish();
  c.text.emplace(Builder().build());
  for (size_t i = 0; i < o.streams; ++i) {
    Stream s;
    s.cpu = static_cast<int32_t>(i);
    if (o.time && random.chance(50)) s.bounds.lo = static_cast<Time>(random.below(2000));
    Time t = 0;
    while (o.time && t < static_cast<Time>(4 * o.ops)) {
      const auto threads = o.contradict ? 3 : 4 * o.streams;
      auto tid = static_cast<int32_t>(random.below(threads));
      if (!o.contradict) tid = static_cast<int32_t>(tid / o.streams * o.streams + i) + 1;
      s.contexts.push_back({.time = t, .pid = tid, .tid = tid, .space = 1});
      t += static_cast<Time>(random.between(1, o.contradict ? 300 : 900));
    }
    c.streams.push_back(std::move(s));
  }
  return c;
}

class RandomOps {
 public:
  RandomOps(const Capture& capture, const RandomOpsOptions& options, SimRandom& random)
      : o_(options), random_(random) {
    for (const Symbol* s : capture.symbols.all()) functions_.push_back(s);
    at_ = functions_[0]->range.begin;
    if (random.chance(50)) blind_ = random.below(o_.ops / 4);
    entry(Step::kAfterGap);
    for (size_t i = 0; i < o_.deep; ++i) {
      move();
      call();
    }
    while (all_.ops.size() < o_.ops) step();
  }

  // Cut anywhere.
  std::vector<FlowOps> chunks() {
    std::vector<FlowOps> out;
    for (size_t i = 0; i < all_.ops.size();) {
      const size_t end = std::min(all_.ops.size(), i + random_.between(1, random_.chance(30) ? 20 : 700));
      FlowOps& chunk = out.emplace_back();
      for (; i < end; ++i) {
        FlowOp& op = chunk.ops.emplace_back(all_.ops[i]);
        if (op.kind == FlowOp::Kind::kGap) {
          chunk.gaps.push_back(all_.gaps[op.item]);
          op.item = static_cast<uint32_t>(chunk.gaps.size() - 1);
        } else if (op.kind == FlowOp::Kind::kEvent) {
          chunk.events.push_back(all_.events[op.item]);
          op.item = static_cast<uint32_t>(chunk.events.size() - 1);
        }
      }
    }
    return out;
  }

 private:
  struct Called {
    Addr back = 0;
    bool boundary = false;
  };

  const Symbol* symbol(Addr a) const {
    for (const Symbol* s : functions_) {
      if (s->range.contains(a)) return s;
    }
    return nullptr;
  }
  FlowOp& add(FlowOp::Kind kind) {
    FlowOp& op = all_.ops.emplace_back();
    op.kind = kind;
    if (random_.chance(60)) now_ += static_cast<Time>(random_.below(7));
    op.time = now_;
    if (random_.chance(2)) op.time -= static_cast<Time>(random_.below(40));
    if (random_.chance(1) || all_.ops.size() < blind_) op.time = kTimeMin;
    op.instructions = random_.chance(80) ? static_cast<uint32_t>(random_.below(9)) : 0;
    if (random_.chance(1)) op.confidence = Confidence::kEquivalent;
    return op;
  }
  void to(FlowOp& op) {
    op.to = at_;
    op.symbol = symbol(at_);
    op.space = is_kernel_address(at_) ? kKernelSpace : 1;
    if (random_.chance(1) && random_.chance(30)) op.space = kNoSpace;
  }
  void entry(uint8_t flags) {
    FlowOp& op = add(FlowOp::Kind::kEntry);
    op.flags = flags;
    to(op);
  }
  void something() {
    if (random_.chance(50)) {
      add(FlowOp::Kind::kPoint);
    } else {
      const auto item = static_cast<uint32_t>(all_.events.size());
      all_.events.emplace_back();
      add(FlowOp::Kind::kEvent).item = item;
    }
  }
  void branch(FlowOp::Kind kind, BranchKind branch, Addr target, Addr back = 0) {
    const Addr from = at_;
    at_ = target;
    const bool cut = random_.chance(8);
    FlowOp& op = add(cut ? FlowOp::Kind::kExit : kind);
    op.branch = branch;
    op.from = from;
    op.back = back != 0 ? back : from + 5;
    op.left = op.symbol = symbol(from);
    if (!cut) return to(op);
    if (random_.chance(20)) something();
    if (random_.chance(90)) entry(0);
  }
  Addr start() { return functions_[random_.below(functions_.size())]->range.begin; }
  Addr anywhere() { return start() + random_.below(kRandomSize); }
  void move() {
    const Symbol* s = symbol(at_);
    if (s != nullptr) at_ = s->range.begin + random_.below(kRandomSize - 5);
  }
  void call() {
    const Symbol* s = symbol(at_);
    // A call without return, at the end of its function.
    const Addr back = s != nullptr && random_.chance(5) ? s->range.end : at_ + 5;
    calls_.push_back({back, false});
    const Addr target = start() + (random_.chance(20) ? 4 : 0);
    branch(FlowOp::Kind::kCall, BranchKind::kCall, target, back);
  }
  void leave() {
    if (calls_.empty()) return branch(FlowOp::Kind::kReturn, BranchKind::kRet, anywhere());
    const Called c = calls_.back();
    calls_.pop_back();
    branch(c.boundary ? FlowOp::Kind::kFarReturn : FlowOp::Kind::kReturn,
           c.boundary ? BranchKind::kFarRet : BranchKind::kRet, c.back);
  }
  void async() {
    calls_.push_back({at_, true});
    FlowOp& op = add(FlowOp::Kind::kAsync);
    op.from = op.back = at_;
    at_ = functions_[random_.below(12)]->range.begin;
    op.to = at_;
    if (random_.chance(5)) something();
    if (random_.chance(97)) entry(Step::kAsyncEntry);
  }
  void system_call() {
    calls_.push_back({at_ + 2, true});
    branch(FlowOp::Kind::kFarCall, BranchKind::kFarCall, functions_[random_.below(12)]->range.begin, at_ + 2);
  }
  void thread() {
    add(FlowOp::Kind::kSpace).from = at_;
    for (const Symbol* s : functions_) {
      if (s->name == "__switch_to_asm") at_ = s->range.begin + 8;
    }
    branch(FlowOp::Kind::kJump, BranchKind::kJump, start());
  }
  void odd() {
    switch (random_.below(10)) {
      case 0:
        return branch(FlowOp::Kind::kReturn, BranchKind::kRet, anywhere());
      case 1:  // retpoline
        return branch(FlowOp::Kind::kReturn, BranchKind::kRet, start());
      case 2:
        if (!calls_.empty()) calls_.resize(random_.below(calls_.size()) + 1);  // longjmp
        return leave();
      case 3:
        return branch(FlowOp::Kind::kFarReturn, BranchKind::kFarRet,
                      random_.chance(50) ? start() : anywhere());
      case 4:
        return thread();
      case 5:
        return stop();
      case 6:
        return lose();
      case 7:
        return entry(0);
      case 8:
        if (random_.chance(5)) calls_.clear();
        return something();
      default:
        add(FlowOp::Kind::kSpace).from = at_;
    }
  }
  void lose() {
    const auto item = static_cast<uint32_t>(all_.gaps.size());
    Gap& g = all_.gaps.emplace_back();
    g.time = {now_, now_ + 9};
    add(FlowOp::Kind::kGap).item = item;
    if (random_.chance(50)) at_ = anywhere();
    if (random_.chance(50) && !calls_.empty()) calls_.resize(random_.below(calls_.size()) + 1);
    entry(Step::kAfterGap);
  }
  void stop() {
    FlowOp& op = add(FlowOp::Kind::kStop);
    op.branch = random_.chance(50)   ? BranchKind::kRet
                : random_.chance(50) ? BranchKind::kFarRet
                                     : BranchKind::kCall;
    op.from = at_;
    op.back = at_ + 5;
    op.left = symbol(at_);
    add(FlowOp::Kind::kStart).to = at_;
    if (random_.chance(50)) at_ = anywhere();
    entry(Step::kAfterGap);
  }
  void step() {
    move();
    if (random_.chance(o_.odd)) return odd();
    const uint64_t what = random_.below(100);
    if (what < 38) return call();
    if (what < 80) return leave();
    if (what < 88) return branch(FlowOp::Kind::kJump, BranchKind::kJump, start());
    if (what < 93) return async();
    if (what < 97) return system_call();
    something();
  }

  const RandomOpsOptions o_;
  SimRandom& random_;
  std::vector<const Symbol*> functions_;
  FlowOps all_;
  std::vector<Called> calls_;
  Addr at_ = 0;
  size_t blind_ = 0;  // ops before the first time
  Time now_ = 1;
};

}  // namespace asof::test
