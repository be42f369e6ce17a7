// Ordered: keeps the order of the items whatever the workers do, in bounded memory, without a deadlock.
#include "decoder/io/ordered.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace asof {
namespace {

struct Piece {
  size_t item = 0;
  int number = 0;
};

// `threads` workers produce `pieces(i)` pieces for each item; delays differ so that late items finish first.
std::vector<Piece> run(size_t items, unsigned threads, uint64_t limit, int (*pieces)(size_t)) {
  std::vector<Piece> out;
  std::atomic<size_t> next{0};
  Ordered<Piece> ordered(limit, [&](Piece& p) { out.push_back(p); });
  std::vector<std::jthread> workers;
  for (unsigned t = 0; t < threads; ++t) {
    workers.emplace_back([&] {
      for (size_t i = next++; i < items; i = next++) {
        for (int n = 0; n < pieces(i); ++n) {
          if (i % 3 == 0) std::this_thread::yield();
          ordered.give(i, {i, n}, 100);
        }
        ordered.finish(i);
      }
    });
  }
  workers.clear();
  return out;
}

void expect_in_order(const std::vector<Piece>& got, size_t items, int (*pieces)(size_t)) {
  size_t at = 0;
  for (size_t i = 0; i < items; ++i) {
    for (int n = 0; n < pieces(i); ++n, ++at) {
      ASSERT_LT(at, got.size());
      ASSERT_EQ(got[at].item, i);
      ASSERT_EQ(got[at].number, n);
    }
  }
  EXPECT_EQ(at, got.size());
}

int many(size_t i) { return static_cast<int>(i % 7); }
int first_is_long(size_t i) { return i == 0 ? 2000 : 3; }

TEST(Ordered, OneWorker) { expect_in_order(run(50, 1, 1 << 20, many), 50, many); }

TEST(Ordered, ManyWorkersManyItems) {
  for (int round = 0; round < 20; ++round) expect_in_order(run(300, 8, 1 << 20, many), 300, many);
}

TEST(Ordered, NoDeadlockWhenNothingMayWait) {
  for (int round = 0; round < 20; ++round) expect_in_order(run(100, 8, 0, many), 100, many);
}

TEST(Ordered, LongHeadHoldsOthersWithinTheLimit) {
  expect_in_order(run(200, 4, 1000, first_is_long), 200, first_is_long);
}

TEST(Ordered, WhatWaitsStaysBelowTheLimit) {
  std::atomic<int> waiting{0};
  std::atomic<int> most{0};
  struct Counted {
    std::atomic<int>* count = nullptr;
  };
  constexpr size_t kItems = 200;
  std::atomic<size_t> next{0};
  Ordered<Counted> ordered(1000, [&](Counted& c) { --*c.count; });
  {
    std::vector<std::jthread> workers;
    for (int t = 0; t < 4; ++t) {
      workers.emplace_back([&] {
        for (size_t i = next++; i < kItems; i = next++) {
          for (int n = 0; n < 10; ++n) {
            const int now = ++waiting;
            int seen = most;
            while (now > seen && !most.compare_exchange_weak(seen, now)) {
            }
            ordered.give(i, {&waiting}, 100);
          }
          ordered.finish(i);
        }
      });
    }
  }
  EXPECT_EQ(waiting, 0);
  EXPECT_LE(most, 10 + 4);  // ten pieces of 100 bytes may wait, and each worker holds one
}

}  // namespace
}  // namespace asof
