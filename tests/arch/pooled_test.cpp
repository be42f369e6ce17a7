// What a decoder gave back is there for the next one, and pieces never move.
#include "arch/pooled.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

namespace asof {
namespace {

struct Piece {
  std::array<uint64_t, 512> words;
};

TEST(Pooled, IsLargeEnoughAndNobodyElses) {
  std::vector<Pooled> all;
  std::set<void*> places;
  for (uint8_t i = 0; i < 50; ++i) {
    all.push_back(pooled(4096));
    std::memset(all.back().get(), i, 4096);
    EXPECT_TRUE(places.insert(all.back().get()).second);
  }
  for (uint8_t i = 0; i < 50; ++i) {
    const auto* bytes = static_cast<const uint8_t*>(all[i].get());
    EXPECT_EQ(bytes[0], i);
    EXPECT_EQ(bytes[4095], i);
  }
}

TEST(Pooled, PiecesStayWhereTheyAre) {
  PieceTable<Piece, 64> table(3);
  EXPECT_EQ(table.take(), 3U);
  Piece* const first = &table[3];
  first->words[511] = 7;
  for (uint32_t i = 4; i < 64; ++i) {
    ASSERT_EQ(table.take(), i);
    table[i].words[0] = i;
  }
  EXPECT_EQ(table.take(), 64U);
  EXPECT_EQ(table.take(), 64U);
  EXPECT_EQ(&table[3], first);
  EXPECT_EQ(first->words[511], 7U);
  EXPECT_EQ(table[63].words[0], 63U);
}

TEST(Pooled, ThreadsTakePiecesOfTheirOwn) {
  PieceTable<Piece, 256> table;
  std::vector<std::thread> threads;
  for (uint64_t t = 1; t <= 4; ++t) {
    threads.emplace_back([&table, t] {
      std::vector<uint32_t> mine;
      for (int n = 0; n < 50; ++n) {
        mine.push_back(table.take());
        table[mine.back()].words.fill(t);
      }
      for (const uint32_t i : mine) {
        EXPECT_EQ(table[i].words[0], t);
        EXPECT_EQ(table[i].words[511], t);
      }
    });
  }
  for (std::thread& t : threads) t.join();
}

}  // namespace
}  // namespace asof
