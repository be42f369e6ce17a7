// What a decoder gave back is there for the next one, and pieces never move.
#include "arch/pooled.h"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <new>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "arch/zeroed.h"
#include "textstore/sanitized.h"

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

// More than the heap gives, so of slabs, too; of many sizes, given back in another order than they were taken.
TEST(Pooled, MuchOfManySizes) {
  struct Taken {
    Pooled memory;
    size_t bytes;
    uint8_t filled;
  };
  std::mt19937 random(7);
  std::vector<Taken> all;
  for (int i = 0; i < 4000; ++i) {
    if (all.size() > 200 || (!all.empty() && random() % 3 == 0)) {
      const size_t at = random() % all.size();
      const auto* bytes = static_cast<const uint8_t*>(all[at].memory.get());
      for (const size_t place : {size_t{0}, all[at].bytes / 2, all[at].bytes - 1})
        ASSERT_EQ(bytes[place], all[at].filled);
      std::swap(all[at], all.back());
      all.pop_back();
      continue;
    }
    const size_t bytes =
        i % 50 == 0 ? (size_t{1} << 19) + 1 : std::array<size_t, 4>{1, 49'153, 65'536, 262'400}[random() % 4];
    all.push_back({pooled(bytes), bytes, static_cast<uint8_t>(i)});
    std::memset(all.back().memory.get(), i, bytes);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(all.back().memory.get()) % alignof(std::max_align_t), 0U);
  }
}

// Memory that the process has, in KiB.
size_t resident() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::stoul(line.substr(6));
  }
  return 0;
}

// A child has one thread: what others did in the pool when it was made is not to keep it waiting.
TEST(Pooled, ChildrenOfAProcessWithThreads) {
  std::atomic<bool> done = false;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&done] {
      while (!done) {
        std::vector<Pooled> all;
        for (int i = 0; i < 40; ++i) all.push_back(pooled(65'536));
      }
    });
  }
  for (int i = 0; i < 30; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      const Pooled mine = pooled(65'536);
      std::memset(mine.get(), 1, 65'536);
      ::_exit(0);
    }
    int status = 1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  done = true;
  for (std::thread& t : threads) t.join();
}

TEST(Pooled, WhatIsNotInUseGoesBack) {
  const size_t before = resident();
  ASSERT_NE(before, 0U);
  {
    std::vector<Pooled> all;
    for (int i = 0; i < 1000; ++i) std::memset(all.emplace_back(pooled(65'536)).get(), 1, 65'536);
    EXPECT_GT(resident(), before + 40'000);
  }
#if !defined(ASOF_ADDRESS_SANITIZER) && !defined(ASOF_THREAD_SANITIZER)  // they have memory of their own
  EXPECT_LT(resident(), before + 20'000);
#endif
}

TEST(Zeroed, IsZeroWhereverHugePagesBegin) {
  for (const size_t size :
       {size_t{1}, size_t{4096}, ZeroedBytes::kOrdinary, kHugePage / 2, kHugePage, 3 * kHugePage + 5}) {
    for (const size_t ordinary : {size_t{0}, ZeroedBytes::kOrdinary}) {
      const auto bytes = zeroed_array<uint8_t>(size, ordinary);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes.get()) % 4096, 0U);
      if (size >= ordinary + kHugePage / 2) {
        EXPECT_EQ((reinterpret_cast<uintptr_t>(bytes.get()) + ordinary) % kHugePage, 0U);
      }
      EXPECT_EQ(std::count(bytes.get(), bytes.get() + size, 0), static_cast<std::ptrdiff_t>(size));
      std::memset(bytes.get(), 1, size);
    }
  }
}

TEST(Zeroed, MoreThanThereIsThrows) {
  EXPECT_THROW((void)zeroed_array<uint64_t>(size_t{1} << 58), std::bad_alloc);
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
