// The clock derived from AUX records: the true line is always within the reported error; other clocks are
// refused; the board captures' own constants are found.
#include "decoder/coresight/cs_clock.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "decoder/model/capture.h"
#include "tests/support/skip_without.h"

namespace asof::test {
namespace {

struct Line {
  long double rate = 16;
  int64_t zero = 0;
  Time at(uint64_t counter) const {
    return zero + static_cast<Time>(rate * static_cast<long double>(counter));
  }
};

// Sections of trace that are fetched at irregular times, each with timestamps at some distance from its ends.
std::vector<ClockBound> bounds_of(const Line& line, uint64_t first, size_t sections, uint64_t slack,
                                  std::mt19937_64& random) {
  std::vector<ClockBound> out;
  uint64_t counter = first;
  for (size_t i = 0; i < sections; ++i) {
    const uint64_t begin = counter, end = begin + 100'000 + random() % 1'000'000;
    out.push_back({begin + random() % slack, line.at(begin), false});
    out.push_back({end - random() % slack, line.at(end), true});
    counter = end + random() % 5000;
  }
  return out;
}

TEST(CsClock, TheTrueLineIsWithinTheError) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 60; ++round) {
    const long double rates[] = {16, 1, 40.0L / 3, 0.5L, 0.333L, 1000};
    const Line line{rates[round % 6], static_cast<int64_t>(random() % 2'000'000'000'000) - 1'000'000'000'000};
    const uint64_t first = random() % (1ULL << (20 + round % 30));
    const auto bounds = bounds_of(line, first, 3 + random() % 60, 1 + random() % 20000, random);
    const auto clock = fit_clock(bounds);
    ASSERT_TRUE(clock.has_value()) << round;
    uint64_t low = UINT64_MAX, high = 0;
    for (const ClockBound& b : bounds) {
      low = std::min(low, b.counter);
      high = std::max(high, b.counter);
    }
    for (int i = 0; i <= 100; ++i) {
      const uint64_t counter = low + (high - low) / 100 * static_cast<uint64_t>(i);
      const Time off = clock->conversion.to_perf(counter) - line.at(counter);
      ASSERT_LE(std::abs(off), clock->error + 1) << round << " " << i;
    }
  }
}

// With timestamps close to the borders, the relation is as precise as they are close.
TEST(CsClock, NearTimestampsGiveASmallError) {
  std::mt19937_64 random(2);
  const auto bounds = bounds_of(Line{16, -435545968}, 200'000'000, 40, 4, random);
  const auto clock = fit_clock(bounds);
  ASSERT_TRUE(clock.has_value());
  EXPECT_LT(clock->error, 100);
}

TEST(CsClock, OtherClocksAreRefused) {
  std::mt19937_64 random(3);
  auto jump = bounds_of(Line{16, 0}, 1000, 30, 10, random);
  for (size_t i = 30; i < jump.size(); ++i) jump[i].counter += 5'000'000;  // the counter was reset
  EXPECT_FALSE(fit_clock(jump).has_value());
  auto stopped = bounds_of(Line{16, 0}, 1000, 30, 10, random);
  for (ClockBound& b : stopped) b.counter = 77;
  EXPECT_FALSE(fit_clock(stopped).has_value());
  auto backwards = bounds_of(Line{16, 0}, 1000, 30, 10, random);
  for (ClockBound& b : backwards) b.counter = 1'000'000'000 - b.counter;
  EXPECT_FALSE(fit_clock(backwards).has_value());
  EXPECT_FALSE(fit_clock({}).has_value());
  // One section says almost nothing about the rate.
  EXPECT_FALSE(fit_clock(bounds_of(Line{16, 0}, 1000, 1, 10, random)).has_value());
}

TEST(CsClockCorpus, BoardConstants) {
  for (const char* name : {"arm64-board-tiny", "arm64-board-helper"}) {
    const auto folder = std::filesystem::path(ASOF_SHARED_DIR) / "captures" / name;
    SKIP_WITHOUT(folder);
    const auto truth = nlohmann::json::parse(std::ifstream(folder / "truth/summary.json"));
    TimeConversion known;
    known.shift = truth["clock"]["time_shift"].get<uint16_t>();
    known.mult = truth["clock"]["time_mult"].get<uint32_t>();
    known.zero = truth["clock"]["time_zero"].get<uint64_t>();
    CaptureOptions options;
    options.host_files = false;
    const auto capture = open_capture((folder / "poke.data").string(), options);
    ASSERT_TRUE(capture.has_value());
    ASSERT_TRUE(capture->arm64.time.has_value());
    EXPECT_LT(capture->arm64.time_error, 200);
    const auto& bounds = capture->streams.at(0).bounds;
    for (int i = 0; i <= 10; ++i) {
      const Time t = bounds.lo + (bounds.hi - bounds.lo) / 10 * i;
      const auto counter = static_cast<uint64_t>(t - static_cast<Time>(known.zero)) / 16;
      EXPECT_NEAR(static_cast<double>(capture->arm64.time->to_perf(counter) - known.to_perf(counter)), 0,
                  static_cast<double>(capture->arm64.time_error));
    }
  }
}

}  // namespace
}  // namespace asof::test
