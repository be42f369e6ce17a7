// Gaps and events in front of one entry of a chunk come in the order in which they happened.
#include "arch/chunk_items.h"

#include <gtest/gtest.h>

#include <string>

namespace asof {
namespace {

// E: event, G: gap, each with the entry that it is in front of.
std::string order_of(const Chunk& chunk, size_t index = SIZE_MAX) {
  std::string out;
  ChunkItems items(chunk);
  items.before(
      index, [&](const Gap& g) { out += "G" + std::to_string(g.step) + " "; },
      [&](const Event& e) { out += "E" + std::to_string(e.step) + " "; });
  return out;
}

Chunk chunk_of(const std::vector<uint32_t>& events, const std::vector<std::pair<uint32_t, uint32_t>>& gaps) {
  Chunk chunk;
  for (const uint32_t step : events) {
    Event e{};
    e.step = step;
    chunk.events.push_back(e);
  }
  for (const auto& [step, after] : gaps) {
    Gap g;
    g.step = step;
    g.after = after;
    chunk.gaps.push_back(g);
  }
  return chunk;
}

TEST(ChunkItems, OfOneEntryAGapComesAfterSoManyEvents) {
  EXPECT_EQ(order_of(chunk_of({1, 1, 1}, {{1, 0}})), "G1 E1 E1 E1 ");
  EXPECT_EQ(order_of(chunk_of({1, 1, 1}, {{1, 2}})), "E1 E1 G1 E1 ");
  EXPECT_EQ(order_of(chunk_of({1, 1, 1}, {{1, 1}, {1, 3}})), "E1 G1 E1 E1 G1 ");
  EXPECT_EQ(order_of(chunk_of({1}, {{1, 7}})), "E1 G1 ");  // damaged
}

TEST(ChunkItems, EventsOfOtherEntriesDoNotCount) {
  EXPECT_EQ(order_of(chunk_of({1, 1, 2, 2}, {{2, 1}})), "E1 E1 E2 G2 E2 ");
  EXPECT_EQ(order_of(chunk_of({1, 1, 2, 2}, {{1, 1}, {2, 0}})), "E1 G1 E1 G2 E2 E2 ");
  EXPECT_EQ(order_of(chunk_of({3}, {{2, 1}})), "G2 E3 ");
}

TEST(ChunkItems, GivesThoseInFrontOfAnEntryOnly) {
  const Chunk chunk = chunk_of({0, 0, 1, 2}, {{0, 1}, {1, 1}});
  EXPECT_EQ(order_of(chunk, 0), "E0 G0 E0 ");
  EXPECT_EQ(order_of(chunk, 1), "E0 G0 E0 E1 G1 ");
  ChunkItems items(chunk);
  items.skip_first();
  EXPECT_EQ(items.next_at(), 1U);
  EXPECT_EQ(items.events_taken(), 2U);
  EXPECT_FALSE(items.has_before(0));
  EXPECT_TRUE(items.has_before(1));
}

}  // namespace
}  // namespace asof
