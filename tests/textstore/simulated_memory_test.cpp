// Soundness: a simulated kernel patches, loads and unloads; what was in memory at the instant code ran must
// be among the store's candidates, and be the only one where nothing was lost
// (docs/live-text.md 7.2, P1, P3, P5).
#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "arch/x86/patch_rules.h"
#include "tests/support/sim_random.h"
#include "tests/textstore/text_facts.h"

namespace asof::test {
namespace {

constexpr uint64_t kSize = 256;
constexpr Time kEnd = 100'000'000;  // ns

// A site that is always patched as a whole, with one of a few instructions.
struct SimSite {
  uint64_t at, size;
};

struct SimPoke {
  Time time;
  Addr addr;
  std::vector<uint8_t> before, after;
  uint32_t ring;
  bool recorded;
};

// Fixed kernel text with patched sites.
class SimText {
 public:
  SimText(SimRandom& random, uint64_t loss_percent, bool ties) : start_(kSize) {
    for (uint8_t& b : start_) b = static_cast<uint8_t>(random.below(256));
    for (uint64_t at = 3; at + 8 < kSize; at += random.between(5, 20))
      sites_.push_back({at, random.between(1, 5)});
    std::vector<uint8_t> now = start_;
    Time t = 10'000;
    const uint64_t pokes = random.between(20, 120);
    for (uint64_t i = 0; i < pokes; ++i) {
      const SimSite& s = sites_[random.below(sites_.size())];
      SimPoke p{
          t, kText + s.at, {}, {}, static_cast<uint32_t>(random.below(2)), !random.chance(loss_percent)};
      p.before.assign(now.begin() + s.at, now.begin() + s.at + s.size);
      p.after = p.before;
      p.after[random.below(s.size)] ^= static_cast<uint8_t>(1 + random.below(255));
      // Sometimes a kprobe inside the site.
      if (s.size > 1 && random.chance(20)) {
        p.before.resize(1);
        p.after = {static_cast<uint8_t>(p.before[0] ^ (1 + random.below(255)))};
      }
      std::ranges::copy(p.after, now.begin() + s.at);
      pokes_.push_back(p);
      if (!ties || random.chance(60)) t += static_cast<Time>(random.between(6'000, 1'400'000));
    }
    end_ = now;
  }

  // Memory after all changes up to and including t.
  std::vector<uint8_t> memory(Time t) const {
    std::vector<uint8_t> bytes = start_;
    for (const SimPoke& p : pokes_) {
      if (p.time <= t) std::ranges::copy(p.after, bytes.begin() + static_cast<ptrdiff_t>(p.addr - kText));
    }
    return bytes;
  }

  // All losses of each ring, reported late, as the kernel does: with the ring's next record.
  std::vector<LostRecords> lost() const {
    std::vector<LostRecords> lost;
    for (uint32_t ring : {0U, 1U}) {
      Time last = kTimeMin;
      uint64_t missing = 0;
      for (const SimPoke& p : pokes_) {
        if (p.ring != ring) continue;
        if (p.recorded && missing != 0) lost.push_back({ring, last, p.time, missing});
        if (p.recorded) {
          last = p.time;
          missing = 0;
        } else {
          ++missing;
        }
      }
      if (missing != 0) lost.push_back({ring, last, kEnd, missing});
    }
    return lost;
  }

  void add_pokes(Builder& builder, SimRandom& random) const {
    std::vector<size_t> order;
    for (size_t i = 0; i < pokes_.size(); ++i) {
      if (pokes_[i].recorded) order.push_back(i);
    }
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    for (size_t i : order) {
      const SimPoke& p = pokes_[i];
      builder.add_poke({p.addr, p.time, p.before, p.after, p.ring, 1000 + random.below(100)});
    }
  }

  const std::vector<uint8_t>& start() const { return start_; }
  const std::vector<uint8_t>& end() const { return end_; }
  const std::vector<SimPoke>& pokes() const { return pokes_; }

 private:
  std::vector<SimSite> sites_;
  std::vector<uint8_t> start_, end_;
  std::vector<SimPoke> pokes_;
};

void add_text(Builder& builder, const std::vector<uint8_t>& bytes, Time observed) {
  builder.add_layer({.range = range_of(kText, kSize), .bytes = bytes, .observed = observed});
}

// The candidates of every cell include the truth at t; `alone`: and nothing else.
void expect_truth(const TextStore& store, const std::vector<uint8_t>& truth, Time t, bool alone) {
  for (const Cell& cell : store.cells(kKernelSpace, range_of(kText, kSize))) {
    const auto* bytes = truth.data() + (cell.range.begin - kText);
    bool found = false;
    size_t count = 0;
    const auto possible = cell.possible_in({t, t});
    for (const Version& v : cell.versions) {
      const bool among = &v >= possible.data() && &v < possible.data() + possible.size();
      ASSERT_EQ(v.possible_in({t, t}), among);
      if (!among) continue;
      ++count;
      found = found || (v.bytes != nullptr && std::equal(bytes, bytes + cell.range.size(), v.bytes));
    }
    ASSERT_TRUE(found) << "at +" << cell.range.begin - kText << " time " << t;
    ASSERT_TRUE(!alone || count == 1)
        << count << " candidates at +" << cell.range.begin - kText << " time " << t;
  }
}

TEST(SimulatedMemory, TruthIsTheOnlyCandidateWhileNothingIsLost) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    SimRandom random(seed);
    const SimText text(random, 0, false);
    Builder builder;
    builder.set_patch_rules(x86::kPatchRules);
    add_text(builder, text.start(), kTimeMin);
    text.add_pokes(builder, random);
    const TextStore store = std::move(builder).build();
    EXPECT_TRUE(store.notices().empty());
    for (const SimPoke& p : text.pokes()) {
      expect_truth(store, text.memory(p.time - 1), p.time - 1, true);
      expect_truth(store, text.memory(p.time), p.time, true);
      if (HasFatalFailure()) return;
    }
    expect_truth(store, text.end(), kEnd, true);
  }
}

// Most ties are decided by the bytes; where several orders are possible, each gives what was in memory.
TEST(SimulatedMemory, EqualTimesKeepTheChainWhole) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    SimRandom random(seed);
    const SimText text(random, 0, true);
    Builder builder;
    builder.set_patch_rules(x86::kPatchRules);
    add_text(builder, text.start(), kTimeMin);
    text.add_pokes(builder, random);
    const TextStore store = std::move(builder).build();
    EXPECT_TRUE(notices_of(store, TextNotice::Kind::kChainBreak).empty());
    for (const SimPoke& p : text.pokes()) {
      expect_truth(store, text.memory(p.time), p.time, true);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(SimulatedMemory, BackwardFromTheEndEqualsForwardFromTheStart) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    SimRandom random(seed);
    const SimText text(random, 0, false);
    // Any instant of the copy will do.
    const Time middle = static_cast<Time>(random.below(kEnd));
    const std::vector<uint8_t> copy = text.memory(middle);
    std::vector<TextStore> stores;
    const std::pair<const std::vector<uint8_t>*, Time> copies[] = {
        {&text.start(), kTimeMin}, {&text.end(), kEnd}, {&copy, middle}};
    for (const auto& [bytes, observed] : copies) {
      Builder builder;
      builder.set_patch_rules(x86::kPatchRules);
      add_text(builder, *bytes, observed);
      text.add_pokes(builder, random);
      stores.push_back(std::move(builder).build());
      EXPECT_TRUE(stores.back().notices().empty());
    }
    for (Time t = 0; t < kEnd; t += 1'000'003) {
      std::vector<std::vector<uint8_t>> read(3, std::vector<uint8_t>(kSize));
      for (size_t i = 0; i < 3; ++i) ASSERT_EQ(stores[i].read(kKernelSpace, kText, t, read[i]), kSize);
      ASSERT_EQ(read[0], text.memory(t));
      ASSERT_EQ(read[1], read[0]);
      ASSERT_EQ(read[2], read[0]);
    }
  }
}

TEST(SimulatedMemory, CopyTornByPokesDoesNoHarm) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    SimRandom random(seed);
    const SimText text(random, 0, false);
    // Each 16 bytes are copied at a different, unknown time.
    std::vector<uint8_t> copy(kSize);
    for (uint64_t at = 0; at < kSize; at += 16) {
      const std::vector<uint8_t> then = text.memory(static_cast<Time>(random.below(kEnd)));
      std::copy_n(then.begin() + static_cast<ptrdiff_t>(at), 16, copy.begin() + static_cast<ptrdiff_t>(at));
    }
    Builder builder;
    builder.set_patch_rules(x86::kPatchRules);
    add_text(builder, copy, kTimeMin);
    text.add_pokes(builder, random);
    const TextStore store = std::move(builder).build();
    for (Time t = 0; t < kEnd; t += 3'000'017) {
      expect_truth(store, text.memory(t), t, true);
      if (HasFatalFailure()) return;
    }
  }
}

// A change and its reversal that are both lost leave no evidence, so times at which lost changes are in
// effect are skipped unless the next record or an end snapshot shows them.
TEST(SimulatedMemory, TruthIsAmongTheCandidatesWhenOneChangeOfASiteIsLost) {
  size_t ambiguous = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    SimRandom random(seed);
    const SimText text(random, 10, false);
    Builder builder;
    builder.set_patch_rules(x86::kPatchRules);
    add_text(builder, text.start(), kTimeMin);
    text.add_pokes(builder, random);
    for (const LostRecords& l : text.lost()) builder.add_lost(l);
    const TextStore store = std::move(builder).build();
    std::map<Addr, std::vector<const SimPoke*>> by_site;
    for (const SimPoke& p : text.pokes()) by_site[p.addr].push_back(&p);
    for (const auto& [addr, pokes] : by_site) {
      for (size_t i = 1; i + 1 < pokes.size(); ++i) {
        // One lost change between two recorded ones, all of the same bytes.
        if (pokes[i]->recorded || !pokes[i - 1]->recorded || !pokes[i + 1]->recorded) continue;
        if (pokes[i - 1]->after.size() != pokes[i + 1]->after.size()) continue;
        if (pokes[i]->after.size() != pokes[i + 1]->after.size()) continue;
        for (Time t : {pokes[i]->time - 1, pokes[i]->time, pokes[i + 1]->time - 1}) {
          const std::vector<uint8_t> memory = text.memory(t);
          const auto* truth = memory.data() + (addr - kText);
          const Cell cell = store.cell(kKernelSpace, addr);
          bool found = false;
          size_t count = 0;
          for (const Version& v : cell.versions) {
            if (!v.possible_in({t, t})) continue;
            ++count;
            found = found || v.bytes == nullptr ||
                    std::equal(truth, truth + pokes[i]->after.size(), v.bytes + (addr - cell.range.begin));
          }
          ASSERT_TRUE(found) << "at +" << addr - kText << " time " << t;
          ambiguous += count > 1 ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(ambiguous, 500U);
}

// Programs come and go in one area; each runs only between its announcement and the next one at its address.
TEST(SimulatedMemory, RunningProgramsAreReadFromTheirOwnLifetime) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    SimRandom random(seed);
    std::deque<std::vector<uint8_t>> owned;
    struct Program {
      Addr begin;
      std::vector<uint8_t> bytes;
      Time from, until;
    };
    struct Check {
      Time t;
      Addr addr;
      std::vector<uint8_t> bytes;
    };
    std::vector<Check> checks;
    Builder builder;
    builder.set_patch_rules(x86::kPatchRules);
    owned.emplace_back(kSize, uint8_t{0xcc});
    builder.add_layer({.range = range_of(kText, kSize), .bytes = owned.back()});
    Time t = 100'000;
    for (int n = 0; n < 12; ++n) {
      Program p{kText + random.below(kSize - 64), std::vector<uint8_t>(random.between(24, 64)), 0, 0};
      for (uint8_t& b : p.bytes) b = static_cast<uint8_t>(random.below(4));
      std::vector<uint8_t> now = p.bytes;
      const auto poke = [&](Time when) {
        const uint64_t at = random.below(4) * 5;  // its own few sites
        owned.emplace_back(now.begin() + static_cast<ptrdiff_t>(at),
                           now.begin() + static_cast<ptrdiff_t>(at) + 5);
        owned.push_back(owned.back());
        owned.back()[random.below(5)] ^= static_cast<uint8_t>(1 + random.below(3));
        builder.add_poke(
            {p.begin + at, when, owned[owned.size() - 2], owned.back(), 0, static_cast<uint64_t>(when)});
        std::ranges::copy(owned.back(), now.begin() + static_cast<ptrdiff_t>(at));
      };
      if (random.chance(50)) poke(t += 10'000);  // before its announcement
      p.from = t += 10'000;
      checks.push_back({t, p.begin, now});
      Time observed = kTimeMin;
      std::vector<uint8_t> image;
      for (uint64_t k = random.between(1, 5), fetched = random.below(k + 1); k-- > 0;) {
        if (k == fetched || image.empty()) {
          observed = t += 10'000;
          image = now;
        }
        checks.push_back({t, p.begin, now});
        if (random.chance(70)) poke(t += 10'000);
        checks.push_back({t, p.begin, now});
      }
      p.until = t += 10'000;
      if (random.chance(50)) poke(t += 10'000);  // after its end
      checks.push_back({t, p.begin, now});
      owned.push_back(image);
      builder.add_layer({.range = range_of(p.begin, image.size()),
                         .bytes = owned.back(),
                         .from = p.from,
                         .until = p.until,
                         .soft_until = true,
                         .observed = observed,
                         .rank = kRankEpoch});
      t += 50'000;
    }
    const TextStore store = std::move(builder).build();
    for (const Check& c : checks) {
      std::vector<uint8_t> read(c.bytes.size());
      ASSERT_EQ(store.read(kKernelSpace, c.addr, c.t, read), read.size()) << "time " << c.t;
      ASSERT_EQ(to_hex(read), to_hex(c.bytes)) << "time " << c.t;
    }
  }
}

}  // namespace
}  // namespace asof::test
