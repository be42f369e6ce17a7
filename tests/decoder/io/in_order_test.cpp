// in_order: results of several threads, one by one in order.
#include "decoder/io/in_order.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

namespace asof::test {
namespace {

TEST(InOrder, EveryResultOnceAndInOrderForAnyNumberOfThreads) {
  for (const size_t threads : {1, 2, 5, 16}) {
    const ThreadsHere limit(threads);
    for (const size_t n : {0, 1, 2, 3, 40, 1000}) {
      std::vector<std::string> taken;
      in_order(
          n, [](size_t i) { return std::to_string(i); },
          [&](std::string s) { taken.push_back(std::move(s)); });
      ASSERT_EQ(taken.size(), n) << threads;
      for (size_t i = 0; i < n; ++i) ASSERT_EQ(taken[i], std::to_string(i)) << threads;
    }
  }
}

TEST(InOrder, OnlySoManyResultsWait) {
  constexpr size_t kThreads = 3;
  const ThreadsHere limit(kThreads);
  std::atomic<size_t> made = 0;
  size_t taken = 0;
  in_order(
      200, [&](size_t i) { return ++made, i; },
      [&](size_t) {
        ++taken;
        EXPECT_LE(made, taken + 2 * kThreads);
      });
  EXPECT_EQ(made, 200U);
}

TEST(InOrder, WhatIsThrownArrivesAndAllThreadsEnd) {
  const ThreadsHere limit(4);
  const auto bad_at_9 = [](size_t i) { return i == 9 ? throw std::runtime_error("9") : i; };
  EXPECT_THROW(in_order(100, bad_at_9, [](size_t) {}), std::runtime_error);
  const auto good = [](size_t i) { return i; };
  EXPECT_THROW(in_order(100, good, [](size_t i) { i == 5 ? throw std::runtime_error("5") : void(); }),
               std::runtime_error);
}

}  // namespace
}  // namespace asof::test
