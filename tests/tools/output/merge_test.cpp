// The order of lines over CPUs: by time, ties by stream, whatever the sizes of the pieces; bounded memory.
#include "tools/output/merge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace asof {
namespace {

TimedText lines(const std::vector<std::pair<Time, std::string>>& parts) {
  TimedText t;
  for (const auto& [time, text] : parts) {
    t.at(time);
    t.text += text;
  }
  return t;
}

struct Written {
  std::string text;
  Merger::Write write = [this](std::string_view s) { text += s; };
};

TEST(Merge, ByTimeThenByStream) {
  Written out;
  Merger m(3, out.write);
  m.add(1, lines({{10, "b10 "}, {20, "b20 "}, {30, "b30 "}}), 0);
  m.add(0, lines({{10, "a10 "}, {25, "a25 "}}), 0);
  m.add(2, lines({{5, "c5 "}, {20, "c20 "}}), 0);
  EXPECT_EQ(out.text, "");
  m.finish();
  EXPECT_EQ(out.text, "c5 a10 b10 b20 c20 a25 b30 ");
}

TEST(Merge, WritesWhatIsBeforeTheWatermark) {
  Written out;
  Merger m(2, out.write);
  m.add(0, lines({{10, "a10 "}, {40, "a40 "}}), 10);
  EXPECT_EQ(out.text, "");
  m.add(1, lines({{30, "b30 "}}), 30);
  EXPECT_EQ(out.text, "a10 ");
  m.add(1, lines({{50, "b50 "}}), 45);
  EXPECT_EQ(out.text, "a10 b30 a40 ");
  m.finish();
  EXPECT_EQ(out.text, "a10 b30 a40 b50 ");
}

TEST(Merge, LinesOfAStreamKeepTheirOrderWithoutTime) {
  Written out;
  Merger m(1, out.write);
  m.add(0, lines({{kTimeMin, "x "}, {10, "y "}, {5, "z "}}), kTimeMin);
  m.finish();
  EXPECT_EQ(out.text, "x y z ");
}

TEST(Merge, LimitForcesOutputAndIsCounted) {
  Written out;
  Merger m(2, out.write, 100);
  m.add(0, lines({{10, std::string(90, 'a')}}), 0);
  EXPECT_EQ(m.forced(), 0u);
  m.add(1, lines({{20, std::string(90, 'b')}}), 0);
  EXPECT_EQ(m.forced(), 1u);
  EXPECT_EQ(out.text, std::string(90, 'a') + std::string(90, 'b'));
}

TEST(Merge, RandomPiecesComeOutSorted) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 rng(seed);
    constexpr size_t kStreams = 4;
    std::vector<std::vector<std::pair<Time, std::string>>> all(kStreams);
    std::vector<std::pair<std::tuple<Time, size_t, int>, std::string>> expected;
    for (size_t s = 0; s < kStreams; ++s) {
      Time t = 0;
      for (int i = 0; i < 500; ++i) {
        t += static_cast<Time>(rng() % 4);
        std::string text = std::to_string(s) + ":" + std::to_string(t) + "#" + std::to_string(i) + " ";
        all[s].emplace_back(t, text);
        expected.push_back({{t, s, i}, std::move(text)});
      }
    }
    std::sort(expected.begin(), expected.end());
    std::string want;
    for (const auto& [key, text] : expected) want += text;

    // Pieces in the order of their first time, as segments arrive.
    Written out;
    Merger m(kStreams, out.write);
    std::vector<size_t> next(kStreams);
    for (;;) {
      size_t first = kStreams;
      for (size_t s = 0; s < kStreams; ++s) {
        if (next[s] == all[s].size()) continue;
        if (first == kStreams || all[s][next[s]].first < all[first][next[first]].first) first = s;
      }
      if (first == kStreams) break;
      const size_t n = std::min<size_t>(1 + rng() % 40, all[first].size() - next[first]);
      const auto begin = all[first].begin() + static_cast<long>(next[first]);
      m.add(first, lines({begin, begin + static_cast<long>(n)}), begin->first);
      next[first] += n;
    }
    m.finish();
    EXPECT_EQ(out.text, want) << "seed " << seed;
  }
}

}  // namespace
}  // namespace asof
