// The store against a second one that is slow and simple, on thousands of random histories: any mix of
// layers, pokes that fit or do not fit, installations, removals and losses.
#include <gtest/gtest.h>

#include <deque>
#include <ostream>
#include <sstream>

#include "arch/x86/patch_rules.h"
#include "tests/support/naive_store.h"
#include "tests/support/sim_random.h"
#include "tests/textstore/text_facts.h"

namespace asof::test {
namespace {

constexpr Time kTick = 10000;  // ns; equal pokes less than 5 us apart would count as one recorded twice
constexpr uint64_t kTicks = 60;
constexpr uint64_t kSize = 24;  // bytes of the simulated memory

struct History {
  std::vector<Layer> layers;
  std::vector<Poke> pokes;  // in time order, no equal times
  std::vector<LostRecords> lost;
  bool all_rings = false;
  std::deque<std::vector<uint8_t>> owned;
};

struct Kind {
  unsigned layers, pokes;
  unsigned foreign;  // percent of pokes whose old bytes are not what the previous one left
  bool pure;         // installations and removals, too
  bool observed;
  bool keys = false;  // pokes switch keys: a NOP or one jump
};
void PrintTo(const Kind& k, std::ostream* out) {
  *out << k.layers << " layers, " << k.pokes << " pokes, " << k.foreign << " % foreign"
       << (k.pure ? ", pure" : "") << (k.observed ? ", observed" : "") << (k.keys ? ", keys" : "");
}

constexpr uint8_t kNop5[] = {0x0f, 0x1f, 0x44, 0x00, 0x00}, kJump5[] = {0xe9, 1, 2, 3, 4},
                  kNop2[] = {0x66, 0x90}, kJump2[] = {0xeb, 0x10};

struct Word {
  uint64_t at, size;
  const uint8_t *nop, *jump;
};
constexpr Word kKeys[] = {{3, 5, kNop5, kJump5}, {9, 2, kNop2, kJump2}};

std::vector<uint8_t> random_bytes(SimRandom& random, uint64_t size) {
  std::vector<uint8_t> bytes(size);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>('a' + random.below(2));
  return bytes;
}

Layer random_layer(SimRandom& random, History& history, bool observed) {
  Layer l;
  const Addr begin = random.below(kSize);
  l.range = {kText + begin, kText + random.between(begin + 1, kSize)};
  if (random.chance(80)) {
    history.owned.push_back(random_bytes(random, l.range.size()));
    l.bytes = history.owned.back();
  }
  const uint64_t from = random.below(kTicks), until = random.between(from, kTicks);
  if (random.chance(60)) l.from = static_cast<Time>(from) * kTick;
  if (random.chance(60))
    l.until = static_cast<Time>(until) * kTick + static_cast<Time>(random.below(2)) * 5000;
  l.soft_until = random.chance(50);
  if (observed && random.chance(60)) l.observed = static_cast<Time>(random.below(kTicks)) * kTick + 3000;
  l.rank = random.chance(50) ? kRankSnapshot : kRankEpoch;
  return l;
}

History random_history(SimRandom& random, const Kind& kind) {
  History h;
  for (uint64_t n = random.below(kind.layers + 1); n > 0; --n) {
    h.layers.push_back(random_layer(random, h, kind.observed));
  }
  std::vector<uint8_t> memory = random_bytes(random, kSize);
  for (const Word& w : kKeys) {
    if (kind.keys) std::copy_n(random.chance(50) ? w.nop : w.jump, w.size, memory.begin() + w.at);
  }
  if (kind.keys) {  // some copies show them in their old state
    for (Layer& l : h.layers) {
      if (l.bytes.empty() || random.chance(30)) continue;
      h.owned.emplace_back(memory.begin() + static_cast<ptrdiff_t>(l.range.begin - kText),
                           memory.begin() + static_cast<ptrdiff_t>(l.range.end - kText));
      l.bytes = h.owned.back();
    }
  }
  const uint64_t pokes = random.below(kind.pokes + 1);
  for (uint64_t i = 0; i < pokes; ++i) {
    uint64_t at = random.below(kSize - 4), size = random.between(1, 4);
    const Word& key = kKeys[random.below(2)];
    if (kind.keys) at = key.at, size = key.size;
    std::vector<uint8_t> old(memory.begin() + at, memory.begin() + at + size);
    if (random.chance(kind.foreign)) old = random_bytes(random, size);
    std::vector<uint8_t> now = random_bytes(random, size);
    if (kind.keys) {
      const uint8_t* word = random.chance(50) ? key.nop : key.jump;
      now.assign(word, word + size);
    }
    if (kind.pure && random.chance(15)) old.clear();
    if (kind.pure && !old.empty() && random.chance(15)) now.clear();
    if (!now.empty()) std::copy(now.begin(), now.end(), memory.begin() + at);
    h.owned.push_back(old);
    h.owned.push_back(now);
    const Time time = static_cast<Time>(i * kTicks / pokes) * kTick + static_cast<Time>(i) * 7 + 100;
    h.pokes.push_back({kText + at, time, h.owned[h.owned.size() - 2], h.owned.back(), 0, i});
  }
  for (uint64_t n = random.below(3); n > 0; --n) {
    const uint64_t after = random.below(kTicks);
    h.lost.push_back({0, static_cast<Time>(after) * kTick,
                      static_cast<Time>(random.between(after, kTicks)) * kTick, random.below(4)});
  }
  h.all_rings = random.chance(50);
  return h;
}

template <class T>
void shuffle(std::vector<T>& items, SimRandom& random) {
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random.below(i)]);
}

TextStore build(const History& h, SimRandom* random = nullptr, bool twice = false) {
  std::vector<Poke> pokes = h.pokes;
  std::vector<LostRecords> lost = h.lost;
  if (twice) pokes.insert(pokes.end(), h.pokes.begin(), h.pokes.end());
  if (random != nullptr) shuffle(pokes, *random);
  if (random != nullptr) shuffle(lost, *random);
  Builder builder;
  builder.set_patch_rules(x86::kPatchRules);
  for (const Poke& p : pokes) builder.add_poke(p);
  for (const Layer& l : h.layers) builder.add_layer(l);
  for (const LostRecords& l : lost) builder.add_lost(l);
  if (h.all_rings) builder.all_rings_recorded();
  return std::move(builder).build();
}

std::vector<Time> instants(const History& h) {
  std::set<Time> times{kTimeMin, kTimeMin + 1, -1, 0, kTimeMax};
  const auto around = [&](Time t) {
    for (Time d : {-1, 0, 1}) times.insert(saturating_add(t, d));
  };
  for (const Layer& l : h.layers) {
    around(l.from);
    around(l.until);
    around(l.observed);
  }
  for (const Poke& p : h.pokes) around(p.time);
  for (const LostRecords& l : h.lost) {
    around(l.after);
    around(l.until);
  }
  return {times.begin(), times.end()};
}

std::vector<Cell> cells_of(const TextStore& store) {
  return store.cells(kKernelSpace, {kText - 1, kText + kSize + 1});
}

std::string describe(const std::set<std::string>& texts) {
  std::string all;
  for (const std::string& t : texts) all += "[" + t + "] ";
  return all;
}

std::string describe(const History& h) {
  std::ostringstream out;
  const auto text = [](std::span<const uint8_t> b) { return std::string(b.begin(), b.end()); };
  for (const Layer& l : h.layers) {
    out << "layer +" << l.range.begin - kText << ".." << l.range.end - kText << " \"" << text(l.bytes)
        << "\" from " << l.from << " until " << l.until << (l.soft_until ? " soft" : "") << " observed "
        << l.observed << " rank " << l.rank << "\n";
  }
  for (const Poke& p : h.pokes) {
    out << "poke " << p.time << " +" << p.addr - kText << " \"" << text(p.old_bytes) << "\" -> \""
        << text(p.new_bytes) << "\"\n";
  }
  if (h.all_rings) out << "all rings recorded\n";
  for (const LostRecords& l : h.lost) out << "lost " << l.after << " .. " << l.until << "\n";
  return out.str();
}

void compare_with_naive(const History& h, const TextStore& store) {
  NaiveStore naive;
  for (const Layer& l : h.layers) naive.add_layer(l);
  for (const Poke& p : h.pokes) naive.add_poke(p);
  for (const LostRecords& l : h.lost) naive.add_lost(l);
  if (h.all_rings) naive.all_rings_recorded();
  const std::vector<Time> times = instants(h);
  for (Cell cell : cells_of(store)) {
    if (cell.range.begin < kText || cell.range.end > kText + kSize) {
      EXPECT_TRUE(cell.versions.empty()) << "outside everything";
      continue;
    }
    // A site is a unit. Elsewhere cells with equal versions are merged: there each byte is checked.
    const bool site = std::ranges::any_of(h.pokes, [&](const Poke& p) {
      return cell.range.overlaps(range_of(p.addr, std::max(p.old_bytes.size(), p.new_bytes.size())));
    });
    const uint64_t step = site ? cell.range.size() : 1;
    for (Addr a = cell.range.begin; a < cell.range.end; a += step) {
      const AddrRange part = range_of(a, step);
      for (Time t : times) {
        const auto expected = naive.possible(part, t), got = possible_texts(cell, part, t);
        ASSERT_EQ(got, expected) << describe(h) << "at +" << a - kText << " size " << step << " time " << t
                                 << ": got " << describe(got) << "expected " << describe(expected);
      }
    }
  }
}

void check_shape(const History& h, const TextStore& store) {
  Addr at = 0;
  for (const Cell& c : store.cells(kKernelSpace, {0, UINT64_MAX})) {
    ASSERT_EQ(c.range.begin, at) << "cells are adjacent";
    at = c.range.end;
    for (size_t i = 1; i < c.versions.size(); ++i) {
      ASSERT_LE(c.versions[i - 1].from, c.versions[i].from);
      ASSERT_LE(c.versions[i - 1].until, c.versions[i].until);
    }
    for (const Version& v : c.versions) ASSERT_LE(v.from, v.until);
  }
  ASSERT_EQ(at, UINT64_MAX);
  for (const Poke& p : h.pokes) {
    if (p.old_bytes.empty() || p.new_bytes.empty()) continue;
    const AddrRange r = range_of(p.addr, std::max(p.old_bytes.size(), p.new_bytes.size()));
    ASSERT_TRUE(store.cell(kKernelSpace, p.addr).range.contains(r)) << "a poke's bytes are in one cell";
  }
}

class NaiveProperty : public testing::TestWithParam<Kind> {};

TEST_P(NaiveProperty, SameAnswers) {
  for (uint64_t seed = 0; seed < 800; ++seed) {
    SCOPED_TRACE(seed);
    SimRandom random(seed * 131 + GetParam().layers * 7 + GetParam().pokes);
    const History h = random_history(random, GetParam());
    const TextStore store = build(h);
    check_shape(h, store);
    compare_with_naive(h, store);
    if (HasFatalFailure()) return;
  }
}

TEST_P(NaiveProperty, OrderOfFactsDoesNotMatterAndDuplicatesDoNothing) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    SimRandom random(seed * 977 + GetParam().pokes);
    const History h = random_history(random, GetParam());
    const TextStore store = build(h), shuffled = build(h, &random), twice = build(h, &random, true);
    const std::vector<Cell> cells = cells_of(store);
    for (const TextStore* other : {&shuffled, &twice}) {
      ASSERT_EQ(other->pokes().size(), store.pokes().size());
      const std::vector<Cell> others = cells_of(*other);
      ASSERT_EQ(others.size(), cells.size());
      for (size_t i = 0; i < cells.size(); ++i) {
        ASSERT_EQ(others[i].range, cells[i].range);
        ASSERT_EQ(others[i].versions.size(), cells[i].versions.size());
        for (size_t v = 0; v < cells[i].versions.size(); ++v) {
          const Version &a = cells[i].versions[v], &b = others[i].versions[v];
          ASSERT_EQ(a.from, b.from);
          ASSERT_EQ(a.until, b.until);
          ASSERT_EQ(a.origin, b.origin);
        }
      }
    }
  }
}

TEST_P(NaiveProperty, WiderBoundsNeverLoseACandidate) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    SimRandom random(seed * 389 + GetParam().pokes);
    const History h = random_history(random, GetParam());
    const TextStore store = build(h);
    const std::vector<Time> times = instants(h);
    for (const Cell& cell : cells_of(store)) {
      for (int n = 0; n < 20; ++n) {
        std::array<Time, 4> t;
        for (Time& x : t) x = times[random.below(times.size())];
        std::ranges::sort(t);
        for (const Version& v : cell.versions) {
          ASSERT_TRUE(!v.possible_in({t[1], t[2]}) || v.possible_in({t[0], t[3]}));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Histories, NaiveProperty,
                         testing::Values(Kind{6, 0, 0, false, false}, Kind{0, 10, 0, false, false},
                                         Kind{0, 10, 30, false, false}, Kind{2, 10, 10, false, false},
                                         Kind{5, 8, 10, false, false}, Kind{3, 8, 15, true, false},
                                         Kind{3, 8, 10, false, true}, Kind{5, 8, 15, true, true},
                                         Kind{2, 8, 0, false, true, true},
                                         Kind{3, 12, 5, false, true, true}));

}  // namespace
}  // namespace asof::test
