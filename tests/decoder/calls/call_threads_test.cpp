// CallTracker and threads: records that put one thread on two CPUs at once.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "decoder/calls/call_tracker.h"
#include "tests/decoder/calls/call_walk.h"

namespace asof::test {
namespace {

// Records that contradict each other: a thread is on two CPUs at once, also while one of them has lost the flow.
TEST(CallThreads, ThreadThatTwoCpusRunAtOnce) {
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
    const TimelineOptions options;  // the tracker refers to it
    CallTracker tracker(capture, options, true, got);
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

TEST(CallThreads, AThreadTakenAwayEndsOnItsOwnCpu) { expect_taken_away(false); }
TEST(CallThreads, TwoTracesOfOneThread) { expect_taken_away(true); }

}  // namespace
}  // namespace asof::test
