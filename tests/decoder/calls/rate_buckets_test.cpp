#include <gtest/gtest.h>

#include "decoder/calls/timeline_text.h"

namespace asof {
namespace {

struct Points final : TimelineSink {
  void counter(const CounterPoint& p) override { points.push_back(p); }
  std::vector<CounterPoint> points;
};

std::vector<CounterPoint> points_of(const RateBuckets& rates) {
  Points points;
  rates.finish(points);
  return points.points;
}

// Damaged captures have times of any size. Found by fuzzing.
TEST(RateBuckets, EndWithTime) {
  const Time origin = 9'218'305'493'273'984'000;
  RateBuckets rates;
  rates.add(0, origin, 5);
  rates.lost(0, origin, kTimeMax - 1);
  rates.lost(0, kTimeMin + 1, kTimeMin + 2);
  const auto points = points_of(rates);
  ASSERT_GT(points.size(), 4U);
  for (const CounterPoint& p : points) {
    EXPECT_GE(p.time, origin);
    EXPECT_GE(p.value, 0);
  }
}

TEST(RateBuckets, LossesAreNoLongerThanTheTime) {
  RateBuckets rates;
  rates.add(0, 0, 1);
  for (int i = 0; i < 3; ++i) rates.lost(0, 0, 1500);
  std::vector<double> coverage;
  for (const CounterPoint& p : points_of(rates)) {
    if (p.kind == CounterPoint::Kind::kCoverage) coverage.push_back(p.value);
  }
  EXPECT_EQ(coverage, (std::vector<double>{0, 0}));  // in the second, 1,500 ns are told to be lost
}

}  // namespace
}  // namespace asof
