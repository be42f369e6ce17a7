// Stacks from sums that workers made, against the same stacks from single slices: real captures, with switches, losses,
// interrupts and several CPUs, cut into chunks of any size.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "decoder/blocks/block_file.h"
#include "decoder/calls/call_tracker.h"
#include "decoder/calls/op_order.h"
#include "decoder/calls/span_finder.h"
#include "tests/decoder/calls/random_ops.h"
#include "tests/tools/recordings.h"
#include "tools/profile/folded_stacks.h"

namespace asof::test {
namespace {

// Passes on what FoldedStacks is to be told.
class Told final : public TimelineSink {
 public:
  // `refuse`: every so many spans it takes no sums; 0: never.
  Told(FoldedStacks& to, bool sums, uint64_t refuse = 0) : to_(to), sums_(sums), refuse_(refuse) {}
  void begin(const Capture& c) override { to_.begin(c); }
  void track(const TimelineTrack& t) override { to_.track(t); }
  void function(const TimelineFunction& f) override { to_.function(f); }
  void slice(const Slice& s) override {
    ++slices;
    to_.slice(s);
  }
  void gap(const GapSlice& g) override {
    bad_records += g.code == Code::kBadBlockStream;
    to_.gap(g);
  }
  bool takes_sums() const override { return sums_ && to_.takes_sums(); }
  bool takes_sum(uint32_t track, Time begin, Time end) const override {
    if (refuse_ != 0 && ++asked_ % refuse_ == 0) {
      ++refused;
      return false;
    }
    return to_.takes_sum(track, begin, end);
  }
  void sum(const CallSums& s, uint32_t track, uint64_t parent) override { to_.sum(s, track, parent); }

  uint64_t slices = 0, bad_records = 0;
  mutable uint64_t refused = 0;

 private:
  FoldedStacks& to_;
  const bool sums_;
  const uint64_t refuse_;
  mutable uint64_t asked_ = 0;
};

struct Folded {
  std::string text;
  TimelineSummary summary;
  uint64_t slices = 0;  // one by one
  uint64_t bad_records = 0, refused = 0;
};

Folded fold(const Capture& capture, TimelineOptions options, bool sums, bool versions, uint64_t refuse = 0) {
  FoldedStacks stacks({.tracks = true, .versions = versions});
  Told told(stacks, sums, refuse);
  const auto done = run_timeline(capture, options, told);
  Folded out;
  if (!done) {
    ADD_FAILURE() << done.error().reason;
    return out;
  }
  out.summary = *done;
  out.slices = told.slices;
  out.bad_records = told.bad_records;
  out.refused = told.refused;
  for (const StackWeight w : {StackWeight::kNanoseconds, StackWeight::kInstructions, StackWeight::kCalls})
    stacks.write(w, [&](std::string_view line) { out.text += line; });
  return out;
}

class FoldedSums : public RecordingTest {};

// What the records of calls of a block stream say, each under the head of the one before.
size_t move_calls(const std::string& path) {
  const std::string file = read_file(path);
  std::vector<std::string> records;
  std::vector<size_t> calls;
  for (size_t at = blocks::kHeaderSize; at + blocks::kRecordHeader <= file.size();) {
    uint32_t size = 0;
    std::memcpy(&size, file.data() + at + 8, 4);
    const std::string record = file.substr(at, blocks::kRecordHeader + size);
    if (record[4] == static_cast<char>(blocks::RecordType::kCalls)) calls.push_back(records.size());
    at += record.size();
    records.push_back(record);
  }
  std::vector<std::string> moved = records;
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string &to = records[calls[i]], &from = records[calls[(i + 1) % calls.size()]];
    const auto body = [](const std::string& r) { return blocks::kRecordHeader + static_cast<uint8_t>(r[5]); };
    std::string& record = moved[calls[i]];
    record = to.substr(0, body(to)) + from.substr(body(from));
    const auto size = static_cast<uint32_t>(record.size() - blocks::kRecordHeader);
    std::memcpy(record.data() + 8, &size, 4);
    std::memcpy(record.data() + 12, from.data() + 12, 4);  // unpacked
  }
  std::ofstream out(path, std::ios::binary);
  out << file.substr(0, blocks::kHeaderSize);
  for (const std::string& record : moved) out << record;
  return calls.size();
}

// What a block stream says that calls add up to, and its flow where a sum is not taken.
TEST_P(FoldedSums, AreThoseOfABlockStream) {
  const auto capture = open();
  ASSERT_TRUE(capture) << capture.error().reason;
  TimelineOptions options;
  options.cpu_tracks = false;
  const Folded want = fold(*capture, options, false, true);
  const std::string blocks = dir_.path() / "flow.blocks";
  write_blocks(*capture, blocks);
  const auto read = open_capture(blocks, {});
  ASSERT_TRUE(read) << read.error().reason;
  uint64_t records = 0, with_calls = 0;
  for (size_t i = 0; i < read->streams.size(); ++i) {
    for (const blocks::Frame& f : read->blocks->frames(i)) {
      ++records;
      with_calls += !f.calls.empty();
    }
  }
  EXPECT_EQ(with_calls, records);
  for (const uint64_t refuse : {0, 3}) {
    options.pipeline.jobs = refuse == 0 ? 3 : 1;
    const Folded got = fold(*read, options, true, true, refuse);
    EXPECT_TRUE(want.text == got.text) << refuse;
    EXPECT_EQ(want.summary.slices, got.summary.slices);
    EXPECT_EQ(want.summary.instructions, got.summary.instructions);
    EXPECT_EQ(want.summary.gaps, got.summary.gaps);
  }
}

// Where the flow must be read and is not what the sums say, it is told once for each record, and all else is there.
TEST_P(FoldedSums, OfOtherFlowAreTold) {
  const auto capture = open();
  ASSERT_TRUE(capture) << capture.error().reason;
  TimelineOptions options;
  options.cpu_tracks = false;
  const std::string blocks = dir_.path() / "flow.blocks";
  write_blocks(*capture, blocks);
  const auto whole = open_capture(blocks, {});
  ASSERT_TRUE(whole) << whole.error().reason;
  const Folded want = fold(*whole, options, true, true, 1);
  const size_t records = move_calls(blocks);
  if (records < 2) GTEST_SKIP() << "one record of flow";
  const auto read = open_capture(blocks, {});
  ASSERT_TRUE(read) << read.error().reason;
  const Folded got = fold(*read, options, true, true, 1);
  if (want.refused != 0) {
    EXPECT_GT(got.bad_records, 0U);
  }
  EXPECT_LE(got.bad_records, records);
  EXPECT_EQ(want.bad_records, 0U);
  options.pipeline.jobs = 3;
  const Folded again = fold(*read, options, true, true, 1);
  EXPECT_TRUE(got.text == again.text);
  EXPECT_EQ(got.bad_records, again.bad_records);
}

TEST_P(FoldedSums, AreThoseOfSingleSlices) {
  const auto capture = open();
  ASSERT_TRUE(capture) << capture.error().reason;
  for (const bool threads : {false, true}) {
    std::string whole;
    for (const size_t steps : {size_t{64} * 1024, size_t{7}}) {
      TimelineOptions options;
      options.thread_tracks = threads;
      options.cpu_tracks = !threads;
      options.pipeline.decode.chunk_steps = steps;
      options.pipeline.jobs = 1;
      const Folded want = fold(*capture, options, false, threads);
      options.pipeline.jobs = 3;
      const Folded got = fold(*capture, options, true, threads);
      EXPECT_TRUE(want.text == got.text) << threads << " " << steps;
      // Wherever chunks end, which depends on what a worker has decoded before.
      if (whole.empty()) whole = want.text;
      EXPECT_TRUE(whole == want.text) << threads << " " << steps;
      EXPECT_EQ(want.summary.slices, got.summary.slices);
      EXPECT_EQ(want.summary.instructions, got.summary.instructions);
      EXPECT_EQ(want.summary.stretches, got.summary.stretches);
      EXPECT_EQ(want.summary.gaps, got.summary.gaps);
      EXPECT_EQ(want.summary.end, got.summary.end);
      const uint64_t alone = got.slices * 100 / std::max<uint64_t>(want.slices, 1);
      RecordProperty(fmt::format("percent_alone_{}_{}", threads, steps), static_cast<int>(alone));
      if (steps > 1000) {
        EXPECT_LE(alone, 25U);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Captures, FoldedSums, kSmallerRecordings, RecordingTest::name);

// Losses are told while other CPUs are within spans, and count for threads that these have taken.
std::string fold_ops(const Capture& capture, const std::vector<std::pair<size_t, FlowOps>>& chunks,
                     bool sums) {
  FoldedStacks stacks({.tracks = true});
  Told told(stacks, sums);
  TimelineOptions options;
  options.cpu_tracks = false;
  CallTracker tracker(capture, options, true, told);
  SpanFinder finder(capture, true);
  OpOrder<CallTracker> order(capture.streams.size(), tracker);
  tracker.on_break([&](size_t stream) { order.break_span(stream); });
  for (const auto& [stream, chunk] : chunks) {
    FlowOps ops = chunk;
    if (sums) finder.read(stream, ops);
    if (sums) tracker.number_keys(ops);
    order.add(stream, std::move(ops), kTimeMin);
  }
  order.finish();
  tracker.finish();
  std::string out;
  for (const StackWeight w : {StackWeight::kNanoseconds, StackWeight::kInstructions, StackWeight::kCalls})
    stacks.write(w, [&](std::string_view line) { out += line; });
  return out;
}

TEST(FoldedSumsOfOps, LossesCountFromWhenTheyAreTold) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SimRandom random(seed);
    const RandomOpsOptions o{.streams = 3, .contradict = true, .odd = 4};
    const Capture capture = random_capture(o, random);
    std::vector<std::pair<size_t, FlowOps>> chunks;
    for (size_t i = 0; i < o.streams; ++i) {
      for (FlowOps& ops : RandomOps(capture, o, random).chunks()) chunks.emplace_back(i, std::move(ops));
    }
    ASSERT_TRUE(fold_ops(capture, chunks, false) == fold_ops(capture, chunks, true)) << seed;
  }
}

}  // namespace
}  // namespace asof::test
