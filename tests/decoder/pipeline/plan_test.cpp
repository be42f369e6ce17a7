// SegmentPlan: what it returns one by one equals all segments of all streams, put in order.
#include "decoder/pipeline/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "decoder/pipeline/window_start.h"

namespace asof {
namespace {

const std::string kData = ASOF_TEST_DATA;

Capture open(const std::string& name) {
  CaptureOptions options;
  options.symfs = kData + "/" + name + "/symfs";
  auto capture = open_capture(kData + "/" + name + "/perf.data", options);
  if (!capture) throw std::runtime_error(capture.error().reason);
  return std::move(*capture);
}

using SegmentKey = std::tuple<size_t, size_t, uint64_t, uint64_t, uint64_t, Time, bool>;
SegmentKey key_of(const Segment& s) {
  return {s.stream, s.index, s.begin, s.end, s.tail_end, s.start_time, static_cast<bool>(s.before)};
}

// The same by building complete lists.
std::vector<SegmentKey> by_lists(const Arch& arch, const Capture& capture, TimeBounds time,
                                 ChunkOrder order) {
  std::vector<Segment> all;
  for (size_t i = 0; i < capture.streams.size(); ++i) {
    std::vector<Segment> segments = arch.split(capture.streams[i], i);
    std::vector<Time> ends(segments.size(), kTimeMax);  // when the next one begins that has a time of its own
    for (size_t k = segments.size(); k-- > 1;)
      ends[k - 1] = segments[k].start_time == kTimeMin ? ends[k] : segments[k].start_time;
    Time last = kTimeMin;
    for (Segment& s : segments) last = s.start_time = std::max(last, s.start_time);
    for (size_t k = 0; k < segments.size(); ++k) {
      const Time end = ends[k];
      if (segments[k].start_time > time.hi) {  // of the first one behind it, the begin
        Segment& s = all.emplace_back(segments[k]);
        s.end = s.tail_end = s.begin;
        break;
      }
      if (end == kTimeMin || end >= time.lo) all.push_back(segments[k]);
    }
  }
  if (order == ChunkOrder::kByTime) std::ranges::stable_sort(all, {}, &Segment::start_time);
  std::vector<SegmentKey> out;
  for (const Segment& s : all) out.push_back(key_of(s));
  return out;
}

// `ahead`: so many parts of each stream are scanned before each segment is asked for.
std::vector<SegmentKey> by_plan(const Arch& arch, const Capture& capture, TimeBounds time, ChunkOrder order,
                                size_t ahead = 0) {
  PipelineOptions options;
  options.time = time;
  SegmentPlan plan(arch, capture, options, order);
  std::vector<SegmentKey> out;
  for (;;) {
    while (plan.scan_ahead(ahead)) {
    }
    const auto segment = plan.next();
    if (!segment) break;
    out.push_back(key_of(*segment));
  }
  EXPECT_FALSE(plan.next().has_value());
  return out;
}

TEST(SegmentPlan, IsAllSegmentsInOrder) {
  for (const std::string name : {"demo", "demo-arm64"}) {
    const Capture capture = open(name);
    const auto arch = capture.arch();
    ASSERT_TRUE(arch.has_value());
    TimeBounds all{kTimeMax, kTimeMin};
    for (const Stream& s : capture.streams)
      all = {std::min(all.lo, s.bounds.lo), std::max(all.hi, s.bounds.hi)};
    const Time third = (all.hi - all.lo) / 3;
    for (const TimeBounds time :
         {TimeBounds{}, TimeBounds{all.lo + third, all.lo + 2 * third}, TimeBounds{kTimeMin, all.lo + third},
          TimeBounds{all.lo + 2 * third, kTimeMax}, TimeBounds{kTimeMin, kTimeMin + 1}}) {
      for (const ChunkOrder order : {ChunkOrder::kByStream, ChunkOrder::kByTime}) {
        for (const size_t ahead : {0, 3}) {
          EXPECT_EQ(by_plan(**arch, capture, time, order, ahead), by_lists(**arch, capture, time, order))
              << name;
        }
      }
    }
    EXPECT_GT(by_plan(**arch, capture, {}, ChunkOrder::kByTime).size(), capture.streams.size());
  }
}

// What begins before it ends before the window, and nothing of the window is passed over.
TEST(SegmentPlan, WindowsStartWithoutWhatPrecedesThem) {
  size_t skipped = 0;
  for (const std::string name : {"demo", "demo-arm64"}) {
    const Capture capture = open(name);
    const auto arch = capture.arch();
    ASSERT_TRUE(arch);
    for (size_t i = 0; i < capture.streams.size(); ++i) {
      const std::vector<Segment> all = (*arch)->split(capture.streams[i], i);
      EXPECT_EQ(window_start(**arch, capture.streams[i], i, 0, kTimeMin, 16), 0U);
      for (size_t k = 1; k < all.size(); ++k) {
        const Time from = all[k].start_time;
        const uint64_t start = window_start(**arch, capture.streams[i], i, 0, from, 16);
        if (start == 0) continue;
        ++skipped;
        const auto found = std::ranges::find(all, start, &Segment::begin);
        ASSERT_NE(found, all.end());
        EXPECT_LT(found->start_time, from);
        EXPECT_LE(start, all[k - 1].begin);  // it ends where the window begins
      }
    }
  }
  EXPECT_GT(skipped, 10U);
}

}  // namespace
}  // namespace asof
