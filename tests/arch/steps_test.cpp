// StepList returns what was put in, runs as the steps of their blocks; a time applies from its entry to the
// next change.
#include "arch/steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace asof::test {
namespace {

struct Blocks {
  Block jump, cond, ret;
  std::vector<const Block*> two{&jump, &cond};
  RunTable table;
  RunId run{};

  StepCode not_taken() const { return step_code(run, 0); }
  StepCode taken() const { return step_code(run, kTakenBit); }

  Blocks() {
    jump.ip = 0x1000, jump.count = 3, jump.kind = BranchKind::kJump;
    cond.ip = 0x2000, cond.count = 2, cond.kind = BranchKind::kCond;
    ret.ip = 0x3000, ret.count = 1, ret.kind = BranchKind::kRet;
    RunTable::Writer writer(table);
    run = writer.add({.hash = 0, .instructions = 5, .branches = 2, .size = 2}, two.data());
  }
};

void append(StepList& list, const Blocks& b, std::vector<StepCode> codes, Time time) {
  constexpr size_t kRoom = 8;
  std::ranges::copy(codes, list.open_runs(b.table, kRoom));
  if (!codes.empty()) list.time_runs(kRoom, 0, time);
  list.close_runs(kRoom, codes.size(), 5 * codes.size());
}

struct Seen {
  Addr ip;
  uint32_t count;
  bool taken;
  Time time;
  size_t position;
  bool operator==(const Seen&) const = default;
};

std::vector<Seen> read(const StepList& list) {
  std::vector<Seen> out;
  for (auto s = list.begin(); s != list.end(); ++s)
    out.push_back({s->block->ip, s->count, (s->flags & Step::kTaken) != 0, s->time, s.position()});
  return out;
}

TEST(Steps, RunsAndLooseStepsComeBackInOrder) {
  const Blocks b;
  StepList list;
  EXPECT_EQ(list.begin(), list.end());
  list.push_back({.block = &b.ret, .time = 5, .count = 1, .flags = Step::kTaken});
  append(list, b, {b.taken(), b.not_taken()}, 7);
  list.push_back({.block = &b.jump, .time = 7, .count = 2});  // cut short
  EXPECT_EQ(list.size(), 4U);
  EXPECT_EQ(read(list), (std::vector<Seen>{{0x3000, 1, true, 5, 0},
                                           {0x1000, 3, true, 7, 1},
                                           {0x2000, 2, true, 7, 1},
                                           {0x1000, 3, true, 7, 2},
                                           {0x2000, 2, false, 7, 2},
                                           {0x1000, 2, false, 7, 3}}));
  EXPECT_EQ(list.time_at(0), 5);
  EXPECT_EQ(list.time_at(3), 7);
}

TEST(Steps, TimesChangeWithinTheRoom) {
  const Blocks b;
  StepList list;
  StepCode* const codes = list.open_runs(b.table, 8);
  std::fill_n(codes, 3, b.not_taken());
  list.time_runs(8, 0, 7);
  list.time_runs(8, 2, 9);
  list.close_runs(8, 3, 15);
  EXPECT_EQ(list.time_at(0), 7);
  EXPECT_EQ(list.time_at(1), 7);
  EXPECT_EQ(list.time_at(2), 9);
  EXPECT_EQ(list.instructions_in_runs(), 15U);
}

TEST(Steps, ManyTimesWithinTheRoom) {
  const Blocks b;
  StepList list;
  append(list, b, {b.not_taken()}, 7);
  StepCode* const codes = list.open_runs(b.table, 8);
  std::fill_n(codes, 5, b.not_taken());
  const StepList::TimeMark marks[] = {{0, 7}, {2, 9}, {3, 11}};
  list.time_runs(8, marks);
  list.time_runs(8, std::span<const StepList::TimeMark>());
  list.close_runs(8, 5, 25);
  EXPECT_EQ(list.times().size(), 3U);  // the first continues
  constexpr Time kWant[] = {7, 7, 7, 9, 11, 11};
  for (size_t i = 0; i < std::size(kWant); ++i) EXPECT_EQ(list.time_at(i), kWant[i]) << i;
}

TEST(Steps, NothingWrittenLeavesNothing) {
  const Blocks b;
  StepList list;
  append(list, b, {}, 7);
  EXPECT_TRUE(list.empty());
  append(list, b, {b.not_taken()}, 9);
  EXPECT_EQ(list.time_at(0), 9);
}

// Times and loose steps stay; reading the entries afterwards is a bug, and an assertion fails.
TEST(Steps, EntriesThatWereGivenAwayAreNotRead) {
  const Blocks b;
  StepList list, other;
  append(list, b, {b.taken(), b.not_taken()}, 7);
  list.push_back({.block = &b.jump, .time = 9, .count = 2});
  list.give_codes(other);
  EXPECT_TRUE(other.empty());
  EXPECT_EQ(list.size(), 3U);
  EXPECT_EQ(list.time_at(1), 7);
  EXPECT_EQ(list.loose().size(), 1U);
  EXPECT_DEATH(static_cast<void>(list.begin()), "has_memory");
  EXPECT_DEATH(static_cast<void>(list.codes()), "has_memory");
  list.clear();
  EXPECT_EQ(list.begin(), list.end());
}

TEST(RunTable, WritersInParallelNeverShareAnId) {
  RunTable table;
  constexpr uint32_t kEach = 3 * RunTable::kPiece;
  std::vector<std::vector<RunId>> ids(4);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < ids.size(); ++t) {
    threads.emplace_back([&, t] {
      RunTable::Writer writer(table);
      for (uint32_t i = 0; i < kEach; ++i) ids[t].push_back(writer.add({.instructions = t}, nullptr));
    });
  }
  for (std::thread& t : threads) t.join();
  std::vector<RunId> all;
  for (uint32_t t = 0; t < ids.size(); ++t) {
    for (const RunId id : ids[t]) ASSERT_EQ(table[id].instructions, t);
    all.insert(all.end(), ids[t].begin(), ids[t].end());
  }
  std::ranges::sort(all);
  EXPECT_NE(all.front(), RunId::kNone);
  EXPECT_EQ(std::ranges::adjacent_find(all), all.end());
}

TEST(Steps, LooseStepsAreSplitOffOrTruncated) {
  const Blocks b;
  StepList list;
  append(list, b, {b.not_taken()}, 1);
  for (const Time t : {2, 3, 4}) list.push_back({.block = &b.ret, .time = t, .count = 1});
  list.at(2).count = 9;
  StepList rest;
  list.split(2, rest);
  EXPECT_EQ(read(rest), (std::vector<Seen>{{0x3000, 9, false, 3, 0}, {0x3000, 1, false, 4, 1}}));
  EXPECT_EQ(list.size(), 2U);
  list.truncate(1);
  list.push_back({.block = &b.ret, .time = 1, .count = 1});
  EXPECT_EQ(read(list).back(), (Seen{0x3000, 1, false, 1, 1}));
  EXPECT_EQ(list.time_at(1), 1);
}

TEST(Steps, SplitAnywhereBothPartsReadAsTheWhole) {
  const Blocks b;
  const auto fill = [&b](StepList& list) {
    append(list, b, {b.taken(), b.not_taken(), b.taken()}, 7);
    list.add_sum(2, {.hash = 1}, Confidence::kCertain);
    list.push_back({.block = &b.ret, .time = 8, .count = 1, .flags = Step::kTaken});
    append(list, b, {b.not_taken(), b.taken()}, 9);
    list.add_sum(2, {.hash = 2}, Confidence::kAmbiguous);
    append(list, b, {b.taken()}, 9);
    list.push_back({.block = &b.ret, .time = 11, .count = 1});
  };
  StepList whole;
  fill(whole);
  const auto want = read(whole);
  for (size_t at = 0; at <= whole.size(); ++at) {
    StepList list, rest;
    fill(list);
    list.split(at, rest);
    EXPECT_EQ(list.size(), at);
    auto got = read(list);
    for (Seen& seen : read(rest)) {
      seen.position += at;
      got.push_back(seen);
    }
    EXPECT_EQ(got, want) << at;
    EXPECT_EQ(list.instructions_in_runs() + rest.instructions_in_runs(), whole.instructions_in_runs());
    std::vector<uint64_t> sums;
    for (const auto& s : list.sums()) {
      EXPECT_LE(s.end, at);
      sums.push_back(s.sum.hash);
    }
    for (const auto& s : rest.sums()) {
      EXPECT_LE(s.end, rest.size());
      sums.push_back(s.sum.hash);
      EXPECT_EQ(at + s.begin, s.sum.hash == 1 ? 1U : 4U);
    }
    EXPECT_EQ(sums.size(), at == 2 || at == 5 ? 1U : 2U) << at;
    append(rest, b, {b.taken()}, 20);
    EXPECT_EQ(rest.time_at(rest.size() - 1), 20);
  }
}

TEST(Steps, LoosenedRunsReadAsBefore) {
  const Blocks b;
  StepList list;
  append(list, b, {b.taken(), b.not_taken()}, 7);
  list.add_sum(2, {}, Confidence::kCertain);
  list.push_back({.block = &b.ret, .time = 8, .count = 1, .flags = Step::kTaken});
  append(list, b, {b.taken(), b.not_taken()}, 9);
  list.add_sum(2, {}, Confidence::kCertain);
  auto before = read(list);
  const uint64_t in_runs = list.instructions_in_runs();

  EXPECT_EQ(list.loosen(1), (std::vector<uint32_t>{1, 3, 4, 6, 8}));
  auto after = read(list);
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i].position, i < 2 ? 0 : i - 1);
    after[i].position = before[i].position;
  }
  EXPECT_EQ(after, before);
  EXPECT_EQ(list.instructions_in_runs(), in_runs - 15);
  EXPECT_TRUE(list.sums().empty());  // the first sum is of an entry that is no run any more as well
  for (size_t i = 1; i < list.size(); ++i) list.at(i).confidence = Confidence::kAmbiguous;
  EXPECT_EQ(list.time_at(3), 8);
  EXPECT_EQ(list.time_at(5), 9);
}

TEST(Steps, AddressesComeFromTheTraceBehindIndirectBranches) {
  Blocks b;
  Block indirect;
  indirect.ip = 0x4000, indirect.count = 2, indirect.kind = BranchKind::kCallInd;
  const std::vector<const Block*> blocks = {&b.jump, &indirect};
  RunTable::Writer writer(b.table);
  const RunId to_address =
      writer.add({.hash = 0, .instructions = 5, .branches = 2, .size = 2}, blocks.data());
  StepList list;
  append(list, b, {b.taken(), step_code(to_address, 0), b.taken()}, 7);
  const auto behind = [&](size_t floor, uint32_t most = 1000, size_t not_of = 0) {
    const StepList::Place place = list.behind_address(floor, list.size() - not_of, most);
    return std::pair(place.position, place.blocks);
  };
  using Place = std::pair<size_t, uint32_t>;
  EXPECT_EQ(behind(0), Place(2, 0));
  EXPECT_EQ(behind(3), Place(3, 0));
  EXPECT_EQ(behind(0, 1), Place(2, 1));
  list.push_back({.block = &indirect, .count = 1, .flags = 0});  // its branch was not reached
  list.push_back({.block = &b.ret, .count = 1, .flags = Step::kTaken});
  EXPECT_EQ(behind(0), Place(2, 0));
  EXPECT_EQ(behind(0, 3), Place(2, 1));
  EXPECT_EQ(behind(0, 2), Place(3, 0));
  list.push_back({.block = &indirect, .count = 2, .flags = Step::kTaken});
  EXPECT_EQ(behind(0), Place(6, 0));
  EXPECT_EQ(behind(0, 1000, 1), Place(2, 0));
  EXPECT_EQ(behind(0, 1, 1), Place(4, 0));
}

TEST(Steps, AClearedListIsAnEmptyOneWithItsMemory) {
  const Blocks b;
  StepList list;
  append(list, b, {b.not_taken(), b.not_taken()}, 1);
  list.push_back({.block = &b.ret, .time = 2, .count = 1});
  const uint64_t bytes = list.bytes();
  list.clear();
  EXPECT_TRUE(list.empty());
  EXPECT_TRUE(list.begin() == list.end());
  EXPECT_EQ(list.instructions_in_runs(), 0U);
  EXPECT_EQ(list.table(), nullptr);
  EXPECT_EQ(list.bytes(), bytes);
  list.push_back({.block = &b.ret, .time = kTimeMin, .count = 1});
  EXPECT_EQ(read(list), (std::vector<Seen>{{0x3000, 1, false, kTimeMin, 0}}));
}

TEST(Steps, UnknownTimeIsUnknown) {
  const Blocks b;
  StepList list;
  append(list, b, {b.not_taken()}, kTimeMin);
  EXPECT_EQ(list.time_at(0), kTimeMin);
  EXPECT_EQ(list.begin()->time, kTimeMin);
}

TEST(Steps, PowersOfLongRuns) {
  uint64_t p = 1;
  for (uint32_t n = 0; n < 5000; ++n, p *= kHashFactor) ASSERT_EQ(hash_power(n), p) << n;
}

}  // namespace
}  // namespace asof::test
