// A window of time over parts of the streams: what each part gives is together what the whole gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "decoder/pipeline/plan.h"

namespace asof {
namespace {

using Key = std::tuple<size_t, uint64_t, Time>;

std::vector<Key> planned(const Arch& arch, const Capture& capture, const PipelineOptions& options,
                         const std::vector<Time>& reached = {}) {
  SegmentPlan plan(arch, capture, options, ChunkOrder::kByStream, reached);
  std::vector<Key> out;
  while (const auto s = plan.next()) out.emplace_back(s->stream, s->begin, s->start_time);
  return out;
}

TEST(SegmentPlan, OfPartsIsThatOfTheWhole) {
  CaptureOptions open;
  open.host_files = false;
  const auto capture = open_capture(ASOF_TEST_DATA "/demo/perf.data", open);
  ASSERT_TRUE(capture);
  const auto arch = capture->arch();
  ASSERT_TRUE(arch);
  for (size_t i = 0; i < capture->streams.size(); ++i) {
    const std::vector<Segment> all = (*arch)->split(capture->streams[i], i);
    for (size_t k = 1; k < all.size(); ++k) {
      for (const TimeBounds time : {TimeBounds{all[k].start_time + 1, kTimeMax},
                                    TimeBounds{all[k / 2].start_time, all[k].start_time}}) {
        PipelineOptions options;
        options.time = time;
        options.ranges = {{i, 0, UINT64_MAX}};
        const auto whole = planned(**arch, *capture, options);
        options.ranges = {{i, 0, all[k].begin}};
        auto parts = planned(**arch, *capture, options);
        options.ranges = {{i, all[k].begin, UINT64_MAX}};
        const auto rest = planned(**arch, *capture, options);
        parts.insert(parts.end(), rest.begin(), rest.end());
        EXPECT_EQ(parts, whole) << i << " " << k;
      }
    }
  }
}

}  // namespace
}  // namespace asof
