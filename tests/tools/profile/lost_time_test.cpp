// LostTime: whatever the order, each nanosecond counts once.
#include "tools/profile/lost_time.h"

#include <gtest/gtest.h>

#include <random>

namespace asof::test {
namespace {

TEST(LostTime, LateAndOverlappingGapsCountOnce) {
  LostTime lost;
  lost.add(30, 40);
  lost.add(10, 100);  // told when it ends, after one on another CPU that began later
  EXPECT_EQ(lost.within(0, 200), 90U);
  EXPECT_EQ(lost.within(20, 35), 15U);
  lost.add(50, 60);
  EXPECT_EQ(lost.within(55, 80), 25U);
  lost.add(0, 5);
  EXPECT_EQ(lost.within(0, 15), 10U);
  EXPECT_EQ(lost.within(5, 10), 0U);
  lost.add(7, 7);
  EXPECT_EQ(lost.within(0, 200), 95U);
}

// Short and long ones, mostly in order, in blocks and across them.
TEST(LostTime, IsWhatASetOfInstantsSays) {
  constexpr Time kEnd = 20'000;
  std::mt19937 random(57);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (const int64_t late : {0, 40, 4000, 20'000}) {
    LostTime lost;
    std::vector<bool> instants(kEnd);
    for (int i = 0; i < 4000; ++i) {
      const Time at = std::max<Time>(0, 5 * i - (late != 0 ? below(late) : 0));
      const Time begin = std::min(at, kEnd - 1),
                 end = std::min(kEnd, begin + (i % 500 == 0 ? below(3000) : below(4)));
      lost.add(begin, end);
      for (Time t = begin; t < end; ++t) instants[static_cast<size_t>(t)] = true;
      if (i % 37 != 0) continue;
      const Time from = below(kEnd), to = from + below(kEnd - from);
      const auto want =
          static_cast<uint64_t>(std::count(instants.begin() + from, instants.begin() + to, true));
      ASSERT_EQ(lost.within(from, to), want) << late << " " << i;
    }
  }
}

}  // namespace
}  // namespace asof::test
