// Spans taken at once against the same ops taken one by one: the sums of all calls by their callers, every slice that
// was told, gaps and the summary are equal, wherever the ops are cut. Likewise where the ops of spans are left out
// (call_stub.h), and are asked for where a span is not taken.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "decoder/calls/call_stub.h"
#include "decoder/calls/call_tracker.h"
#include "decoder/calls/op_order.h"
#include "decoder/calls/span_finder.h"
#include "tests/decoder/calls/random_ops.h"
#include "tests/support/captures_of.h"

namespace asof::test {
namespace {

struct Total {
  uint64_t calls = 0, instructions = 0;
  int64_t time = 0;
  auto operator<=>(const Total&) const = default;
};

class SumsBySink final : public TimelineSink {
 public:
  explicit SumsBySink(uint64_t refuse = 0) : refuse_(refuse) {}

  bool takes_sum(uint32_t, Time, Time) const override { return refuse_ == 0 || ++asked_ % refuse_ != 0; }
  void track(const TimelineTrack& t) override { tracks_[t.id] = t.name; }
  void function(const TimelineFunction& f) override { names_[f.id] = f.name; }
  void slice(const Slice& s) override { slices.push_back(s); }
  void gap(const GapSlice& g) override { gaps.emplace_back(g.stream, g.cpu, g.tid, g.begin, g.end); }
  void sum(const CallSums& sums, uint32_t track, uint64_t parent) override {
    ++taken;
    Under& u = under_[parent];
    u.time += static_cast<int64_t>(sums.span.call_time);
    std::vector<std::pair<std::string, size_t>> path{{"", sums.span.sums.size()}};
    for (size_t i = 0; i < sums.span.sums.size(); ++i) {
      while (path.back().second == i) path.pop_back();
      const SumNode& n = sums.span.sums[i];
      const std::string name =
          path.back().first + ";" + name_of(sums.of.functions[n.key], sums.of.keys[n.key].version);
      Total& t = u.sums[{track, name}];
      t.calls += n.calls;
      t.instructions += n.instructions;
      t.time += static_cast<int64_t>(n.time);
      if (n.size > 1) path.emplace_back(name, i + n.size);
    }
  }
  // By track and path.
  std::map<std::string, Total> totals() const {
    std::map<uint64_t, const Slice*> by_id;
    std::map<uint64_t, int64_t> children;
    for (const Slice& s : slices) {
      EXPECT_TRUE(by_id.emplace(s.id, &s).second) << "id " << s.id << " twice";
      children[s.parent] += s.end - s.begin;
    }
    const auto path = [&](uint64_t id) {
      std::string out;
      for (const Slice* s; id != 0; id = s->parent) {
        s = by_id.at(id);
        out = ";" + name_of(s->function, s->version) + out;
      }
      return out;
    };
    std::map<std::string, Total> out;
    for (const Slice& s : slices) {
      Total& t = out[tracks_.at(s.track) + path(s.id)];
      ++t.calls;
      t.instructions += s.self_instructions;
      t.time += s.end - s.begin - children[s.id];
      if (const auto u = under_.find(s.id); u != under_.end()) t.time -= u->second.time;
    }
    for (const auto& [id, u] : under_) {
      for (const auto& [at, total] : u.sums) {
        Total& t = out[tracks_.at(at.first) + path(id) + at.second];
        t.calls += total.calls;
        t.instructions += total.instructions;
        t.time += total.time;
      }
    }
    return out;
  }
  // All that a slice says but numbers that depend on the order of streams.
  std::multiset<std::string> told() const {
    std::multiset<std::string> out;
    for (const Slice& s : slices)
      out.insert(fmt::format("{} {} {} {} {} {} {:x} {:x} {:x} {} {}", tracks_.at(s.track),
                             name_of(s.function, s.version), s.begin, s.end, s.instructions,
                             s.self_instructions, s.entry, s.call_site, s.flags,
                             static_cast<int>(s.confidence), s.cpu));
    return out;
  }

  std::vector<Slice> slices;
  std::vector<std::tuple<size_t, int32_t, int32_t, Time, Time>> gaps;
  uint64_t taken = 0;

 private:
  struct Under {
    std::map<std::pair<uint32_t, std::string>, Total> sums;
    int64_t time = 0;
  };
  std::string name_of(uint32_t function, uint32_t version) const {
    return fmt::format("{}.{}", names_.at(function), version);
  }

  const uint64_t refuse_;
  mutable uint64_t asked_ = 0;
  std::map<uint32_t, std::string> tracks_, names_;
  std::map<uint64_t, Under> under_;  // by slice
};

struct Chunked {
  size_t stream = 0;
  Time start = kTimeMin;
  FlowOps ops;
};

// In the order of delivery.
std::vector<Chunked> random_chunks(const Capture& capture, const RandomOpsOptions& o, SimRandom& random) {
  std::vector<Chunked> out;
  for (size_t i = 0; i < capture.streams.size(); ++i) {
    Time last = kTimeMin;
    for (FlowOps& ops : RandomOps(capture, o, random).chunks()) {
      Chunked& c = out.emplace_back(i, last, std::move(ops));
      for (const FlowOp& op : c.ops.ops) last = std::max(last, op.time);
    }
  }
  std::ranges::stable_sort(out, {}, [](const Chunked& c) { return std::pair(c.start, c.stream); });
  return out;
}

struct Ran {
  TimelineSummary summary;
  uint64_t forced = 0, broken = 0, refused = 0, asked = 0;
  size_t ops = 0;  // that were read
};
enum class Form : uint8_t { kOps, kSpans, kCut };

struct Taker {
  void op(size_t stream, const FlowOps& chunk, const FlowOp& op) { tracker.op(stream, chunk, op); }
  bool span_begins(size_t stream, const FlowOps& chunk, const CallSpan& span) {
    const bool taken = tracker.span_begins(stream, chunk, span);
    ran.refused += !taken;
    return taken;
  }
  void span_ends(size_t stream, const FlowOps& chunk, const CallSpan& span) {
    tracker.span_ends(stream, chunk, span);
  }
  void span_broken(size_t stream) {
    ++ran.broken;
    tracker.span_broken(stream);
  }
  bool whole(size_t, FlowOps& chunk, size_t) {
    ++ran.asked;
    EXPECT_EQ(whole_size(chunk), uncut[chunk.record].ops.size());
    chunk = uncut[chunk.record];
    return true;
  }
  CallTracker& tracker;
  Ran& ran;
  std::vector<FlowOps> uncut;
};

Ran run(const Capture& capture, bool has_time, const std::vector<Chunked>& chunks, Form form,
        uint64_t max_waiting, SumsBySink& sink) {
  Ran ran;
  const TimelineOptions options;
  CallTracker tracker(capture, options, has_time, sink);
  SpanFinder finder(capture, has_time);
  Taker taker{tracker, ran, {}};
  const std::vector<const Symbol*> symbols = capture.symbols.all();
  OpOrder<Taker> order(capture.streams.size(), taker, max_waiting);
  tracker.on_break([&](size_t stream) { order.break_span(stream); });
  for (const Chunked& c : chunks) {
    FlowOps ops = c.ops;
    if (form != Form::kOps) finder.read(c.stream, ops);
    if (form == Form::kCut) {
      FlowOps read;
      EXPECT_TRUE(take_calls(put_calls(cut_spans(ops), has_time), symbols, has_time, read));
      read.record = taker.uncut.size();
      tracker.number_keys(ops);
      taker.uncut.push_back(std::exchange(ops, std::move(read)));
    }
    if (form != Form::kOps) tracker.number_keys(ops);
    ran.ops += ops.ops.size();
    order.add(c.stream, std::move(ops), c.start);
  }
  order.finish();
  tracker.finish();
  ran.summary = tracker.summary();
  ran.forced = order.forced();
  return ran;
}

struct Seen {
  uint64_t ops = 0, slices = 0, told = 0, taken = 0, broken = 0, refused = 0, forced = 0, asked = 0;
};

void compare(const RandomOpsOptions& o, uint64_t seed, uint64_t max_waiting, Form form, Seen& seen) {
  SCOPED_TRACE(seed);
  SimRandom random(seed);
  const Capture capture = random_capture(o, random);
  const auto chunks = random_chunks(capture, o, random);
  SumsBySink one_by_one, at_once(seed % 3 == 0 ? 7 : 0);
  const Ran a = run(capture, o.time, chunks, Form::kOps, max_waiting, one_by_one);
  const Ran b = run(capture, o.time, chunks, form, max_waiting, at_once);
  EXPECT_EQ(a.summary.instructions, b.summary.instructions);
  EXPECT_EQ(a.summary.slices, b.summary.slices);
  EXPECT_EQ(a.summary.stretches, b.summary.stretches);
  EXPECT_EQ(a.summary.gaps, b.summary.gaps);
  EXPECT_EQ(a.summary.begin, b.summary.begin);
  EXPECT_EQ(a.summary.end, b.summary.end);
  EXPECT_EQ(a.forced, b.forced);
  EXPECT_EQ(one_by_one.gaps, at_once.gaps);
  const auto all = one_by_one.told(), told = at_once.told();
  ASSERT_TRUE(std::ranges::includes(all, told));
  if (capture.streams.size() == 1) {
    std::map<uint64_t, const Slice*> by_id;
    for (const Slice& s : one_by_one.slices) by_id[s.id] = &s;
    for (const Slice& s : at_once.slices) {
      ASSERT_TRUE(by_id.contains(s.id));
      ASSERT_EQ(by_id.at(s.id)->parent, s.parent);
      ASSERT_EQ(by_id.at(s.id)->begin, s.begin);
    }
  }
  if (o.deep != 0) return;  // paths would be long
  const auto expected = one_by_one.totals(), got = at_once.totals();
  for (const auto& [path, total] : expected) {
    ASSERT_TRUE(got.contains(path)) << path;
    ASSERT_EQ(total, got.at(path)) << path;
  }
  ASSERT_EQ(expected.size(), got.size());
  seen.ops += b.ops;
  seen.asked += b.asked;
  seen.slices += all.size();
  seen.told += told.size();
  seen.taken += at_once.taken;
  seen.broken += b.broken;
  seen.refused += b.refused;
  seen.forced += b.forced;
}

// Of `usual` many, as many as the build is fast enough for.
uint64_t seeds_of(uint64_t usual) { return std::max(captures_of(usual), std::min<uint64_t>(usual, 4)); }

Seen compare_all(const RandomOpsOptions& o, uint64_t usual, uint64_t max_waiting = UINT64_MAX) {
  Seen seen;
  for (uint64_t seed = 1; seed <= seeds_of(usual) && !testing::Test::HasFatalFailure(); ++seed) {
    compare(o, seed, max_waiting, Form::kSpans, seen);
  }
  return seen;
}

// With all ops, and without those of spans.
struct BothSeen {
  Seen all, cut;
};
BothSeen compare_cut(const RandomOpsOptions& o, uint64_t usual) {
  BothSeen seen;
  for (uint64_t seed = 1; seed <= seeds_of(usual) && !testing::Test::HasFatalFailure(); ++seed) {
    compare(o, seed, UINT64_MAX, Form::kSpans, seen.all);
    compare(o, seed, UINT64_MAX, Form::kCut, seen.cut);
  }
  return seen;
}

TEST(CallSpans, OneStream) {
  const Seen seen = compare_all({.switcher = true}, 60);
  EXPECT_GT(seen.taken, captures_of(1000));
  EXPECT_LT(seen.told * 7, seen.slices * 6);
}

TEST(CallSpans, WithoutTime) {
  const Seen seen = compare_all({.time = false}, 60);
  EXPECT_GT(seen.taken, captures_of(1000));
}

TEST(CallSpans, FewOddities) {
  const Seen seen = compare_all({.odd = 1, .ops = 5000}, 10);
  EXPECT_LT(seen.told * 5, seen.slices * 4);
}

// As deep as stacks get.
TEST(CallSpans, FullStack) {
  for (size_t deep = 4108; deep < 4150; deep += 3)
    compare_all({.time = false, .odd = 0, .ops = 5000, .deep = deep}, 3);
}

TEST(CallSpans, ThreadsMoveBetweenCpus) {
  const Seen seen = compare_all({.streams = 3, .switcher = true, .odd = 4}, 30);
  EXPECT_GT(seen.taken, captures_of(1000));
}

TEST(CallSpans, RecordsContradictEachOther) {
  Seen seen = compare_all({.streams = 3, .contradict = true, .odd = 4}, 60);
  EXPECT_GT(seen.broken, captures_of(10));
  EXPECT_GT(seen.refused, captures_of(10));
  seen = compare_all({.streams = 2, .switcher = true, .contradict = true, .odd = 4}, 40);
  EXPECT_GT(seen.broken, captures_of(10));
}

TEST(CallSpans, TooMuchWaits) {
  const Seen seen = compare_all({.streams = 3, .contradict = true, .odd = 2}, 40, 200 << 10);
  EXPECT_GT(seen.forced, captures_of(10));
  EXPECT_GT(seen.taken, captures_of(100));
}

TEST(CallStubs, AreAsGoodAsTheirOps) {
  for (const bool time : {true, false}) {
    const BothSeen seen = compare_cut({.time = time, .switcher = true, .odd = 1, .ops = 5000}, 15);
    EXPECT_LT(seen.cut.ops * 4, seen.all.ops * 3);
    EXPECT_GT(seen.cut.asked, 0U);  // every third sink refuses some
  }
}

TEST(CallStubs, OfSeveralCpus) {
  const BothSeen seen = compare_cut({.streams = 3, .switcher = true, .odd = 4}, 30);
  EXPECT_GT(seen.cut.taken, captures_of(1000));
  EXPECT_GT(seen.cut.asked, captures_of(10));
}

TEST(CallStubs, WhereRecordsContradictEachOther) {
  const BothSeen seen = compare_cut({.streams = 3, .contradict = true, .odd = 4}, 60);
  EXPECT_GT(seen.cut.broken, captures_of(10));
  EXPECT_GT(seen.cut.asked, captures_of(10));
}

// Whatever the bytes say, there is an answer.
TEST(CallStubs, Damaged) {
  SimRandom random(1);
  const RandomOpsOptions o{.streams = 1, .odd = 2};
  const Capture capture = random_capture(o, random);
  const std::vector<const Symbol*> symbols = capture.symbols.all();
  SpanFinder finder(capture, true);
  uint64_t read = 0, refused = 0;
  for (const Chunked& c : random_chunks(capture, o, random)) {
    FlowOps ops = c.ops;
    finder.read(0, ops);
    const std::vector<uint8_t> body = put_calls(cut_spans(ops), true);
    FlowOps other_clock;
    EXPECT_FALSE(take_calls(body, symbols, false, other_clock));
    for (int i = 0; i < 300; ++i) {
      std::vector<uint8_t> damaged = body;
      for (uint64_t n = random.between(1, 3); n != 0; --n)
        damaged[random.below(damaged.size())] = static_cast<uint8_t>(random.below(256));
      if (random.chance(10)) damaged.resize(random.below(damaged.size()));
      FlowOps got;
      if (!take_calls(damaged, symbols, true, got)) {
        ++refused;
        continue;
      }
      ++read;
      SumsBySink sink;
      const TimelineOptions options;
      CallTracker tracker(capture, options, true, sink);
      OpOrder<CallTracker> order(1, tracker);
      tracker.on_break([&](size_t stream) { order.break_span(stream); });
      tracker.number_keys(got);
      for (FlowOp& op : got.ops) {  // whoever refuses a span has other ops for it
        if (op.kind == FlowOp::Kind::kSpan) op.kind = FlowOp::Kind::kPoint;
      }
      order.add(0, std::move(got), kTimeMin);
      order.finish();
      tracker.finish();
    }
  }
  EXPECT_GT(read, 100U);
  EXPECT_GT(refused, 100U);
}

}  // namespace
}  // namespace asof::test
