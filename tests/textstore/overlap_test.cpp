// Layers of one rank that overlap partly, in addresses and in time: programs whose beginning or end is not
// known. Each program that may be there is a candidate at each of its bytes, and bytes with one candidate
// only are the same in all of them, over any length that one instruction can have: nothing certain is
// composed of bytes of two programs.
#include <gtest/gtest.h>

#include <deque>

#include "arch/x86/patch_rules.h"
#include "tests/support/sim_random.h"
#include "tests/textstore/text_facts.h"

namespace asof::test {
namespace {

constexpr uint64_t kSize = 96;
constexpr uint64_t kInsn = 15;
constexpr Time kEnd = 1000;

struct World {
  std::deque<std::vector<uint8_t>> owned;
  std::vector<Layer> layers;

  explicit World(SimRandom& random) {
    std::vector<uint8_t> common(kSize);  // much is equal in all of them, as in programs from one source
    for (uint8_t& b : common) b = static_cast<uint8_t>(random.below(256));
    for (uint64_t n = random.between(2, 5); n != 0; --n) {
      Layer l;
      const uint64_t begin = random.below(kSize - 20);
      l.range = {kText + begin, kText + random.between(begin + 16, kSize)};
      auto& bytes = owned.emplace_back(common.begin() + static_cast<ptrdiff_t>(begin),
                                       common.begin() + static_cast<ptrdiff_t>(l.range.end - kText));
      for (uint64_t i = random.below(6); i != 0; --i) bytes[random.below(bytes.size())] ^= 0x40;
      l.bytes = bytes;
      if (!random.chance(30)) l.from = static_cast<Time>(random.below(kEnd));
      if (!random.chance(30))
        l.until = static_cast<Time>(random.between(static_cast<uint64_t>(std::max<Time>(l.from, 0)), kEnd));
      l.soft_until = random.chance(30);
      l.rank = kRankEpoch;
      layers.push_back(l);
    }
  }
  bool covers(const Layer& l, AddrRange r, Time t) const {
    return l.range.contains(r) && l.from <= t && t <= l.until;
  }
};

// All possible bytes of `r` at t: one list for each cell.
std::vector<std::vector<std::vector<uint8_t>>> possible(const TextStore& store, AddrRange r, Time t) {
  std::vector<std::vector<std::vector<uint8_t>>> cells;
  for (const Cell& cell : store.cells(kKernelSpace, r)) {
    const AddrRange part = cell.range.intersect(r);
    auto& texts = cells.emplace_back();
    for (const Version& v : cell.versions) {
      if (!v.possible_in({t, t})) continue;
      std::vector<uint8_t> text;
      if (v.bytes != nullptr) {
        const uint8_t* first = v.bytes + (part.begin - cell.range.begin);
        text.assign(first, first + part.size());
      }
      texts.push_back(text);
    }
  }
  return cells;
}

TEST(Overlap, EveryOneThatCanBeThereIsACandidateAndOnlyWhatTheyShareIsCertain) {
  uint64_t ambiguous = 0, certain = 0;
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    SCOPED_TRACE(seed);
    SimRandom random(seed);
    const World world(random);
    Builder builder;
    builder.set_patch_rules(x86::kPatchRules);
    for (const Layer& l : world.layers) builder.add_layer(l);
    const TextStore store = std::move(builder).build();
    for (int look = 0; look < 40; ++look) {
      const Time t = static_cast<Time>(random.below(kEnd));
      const AddrRange r = range_of(kText + random.below(kSize - kInsn), random.between(1, kInsn));
      const auto cells = possible(store, r, t);
      for (const Layer& l : world.layers) {
        if (!world.covers(l, r, t)) continue;
        size_t at = r.begin - l.range.begin;
        for (const auto& texts : cells) {
          ASSERT_FALSE(texts.empty());
          const auto mine = l.bytes.subspan(at, texts[0].empty() ? 0 : texts[0].size());
          const auto same = [&](const std::vector<uint8_t>& text) { return std::ranges::equal(text, mine); };
          ASSERT_TRUE(std::ranges::any_of(texts, same)) << "at +" << r.begin - kText << " time " << t;
          at += mine.size();
          (texts.size() == 1 ? certain : ambiguous) += 1;
        }
      }
      // Two cells that differ independently would let a path take its halves from different programs.
      const auto differs = [](const auto& texts) {
        return std::ranges::any_of(texts, [&](const auto& text) { return text != texts[0]; });
      };
      const bool inside_one = std::ranges::any_of(world.layers, [&](const Layer& l) {
        return l.range.contains(r) && std::ranges::all_of(world.layers, [&](const Layer& o) {
                 return o.range.contains(r) || !o.range.overlaps(r);
               });
      });
      if (inside_one) {
        ASSERT_LE(std::ranges::count_if(cells, differs), 1)
            << "at +" << r.begin - kText << " size " << r.size() << " time " << t;
      }
    }
  }
  EXPECT_GT(ambiguous, 5'000U);
  EXPECT_GT(certain, 5'000U);
}

// One program after the other, with changes in each, where the layer of each lasts longer than the program
// did.
class Blurred {
 public:
  struct Look {
    Time t;
    Addr begin;
    std::vector<uint8_t> bytes;
  };

  explicit Blurred(SimRandom& random) : random_(random), soft_(random.chance(30)) {
    Time t = 100'000;
    for (int n = 0; n < 6; ++n) t = program(t) + static_cast<Time>(random_.between(10'000, 60'000));
  }
  TextStore build() {
    builder_.set_patch_rules(x86::kPatchRules);
    return std::move(builder_).build();
  }
  const std::vector<Look>& looks() const { return looks_; }
  const std::string& transcript() const { return transcript_; }

 private:
  Time program(Time t) {
    const Addr begin = kText + random_.below(40);
    std::vector<uint8_t> now(random_.between(24, 56));
    // Enough values that a change to one program does not fit another one by chance.
    for (uint8_t& b : now) b = static_cast<uint8_t>(random_.below(64));
    const Time from = t;
    Time observed = t;
    std::vector<uint8_t> image = now;
    for (uint64_t k = random_.between(1, 4); k-- > 0;) {
      looks_.push_back({t, begin, now});
      t += 10'000;
      if (random_.chance(60)) poke(t, begin, now);
      looks_.push_back({t, begin, now});
      t += 10'000;
      if (random_.chance(40)) observed = t, image = now;
    }
    looks_.push_back({t, begin, now});
    const auto much = [&] { return static_cast<Time>(random_.below(80'000)); };
    const Layer layer{.range = range_of(begin, image.size()),
                      .bytes = owned_.emplace_back(image),
                      .from = soft_                ? from
                              : random_.chance(20) ? kTimeMin
                                                   : from - much(),
                      .until = soft_                ? t
                               : random_.chance(20) ? kTimeMax
                                                    : t + much(),
                      .soft_until = soft_,
                      .observed = observed,
                      .rank = kRankEpoch};
    builder_.add_layer(layer);
    transcript_ += "program at +" + std::to_string(begin - kText) + " from " + std::to_string(from) +
                   " until " + std::to_string(t) + ": " + to_hex(image) + " of " + std::to_string(observed) +
                   ", layer from " + std::to_string(layer.from) + " until " + std::to_string(layer.until) +
                   (soft_ ? " softly\n" : "\n");
    return t;
  }
  void poke(Time t, Addr begin, std::vector<uint8_t>& now) {
    const auto at = static_cast<ptrdiff_t>(random_.below(3) * 5);
    const auto& before = owned_.emplace_back(now.begin() + at, now.begin() + at + 5);
    auto& after = owned_.emplace_back(before);
    after[random_.below(5)] ^= static_cast<uint8_t>(1 + random_.below(3));
    builder_.add_poke({begin + static_cast<uint64_t>(at), t, before, after, 0, static_cast<uint64_t>(t)});
    std::ranges::copy(after, now.begin() + at);
    transcript_ += "poke +" + std::to_string(begin - kText + static_cast<uint64_t>(at)) + " at " +
                   std::to_string(t) + ": " + to_hex(before) + " -> " + to_hex(after) + "\n";
  }

  SimRandom& random_;
  bool soft_;  // everything is known: each layer ends softly at the program's end
  Builder builder_;
  std::deque<std::vector<uint8_t>> owned_;
  std::vector<Look> looks_;
  std::string transcript_;
};

TEST(Overlap, ChangedProgramsWhoseLifetimesAreBlurredStayPossible) {
  uint64_t sure = 0, looked = 0;
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE(seed);
    SimRandom random(seed);
    Blurred world(random);
    const TextStore store = world.build();
    for (const Blurred::Look& look : world.looks()) {
      const AddrRange r = range_of(look.begin, look.bytes.size());
      for (const Cell& cell : store.cells(kKernelSpace, r)) {
        const AddrRange part = cell.range.intersect(r);
        const auto* truth = look.bytes.data() + (part.begin - r.begin);
        bool found = false;
        size_t count = 0;
        for (const Version& v : cell.versions) {
          if (!v.possible_in({look.t, look.t})) continue;
          ++count;
          found = found || v.bytes == nullptr ||
                  std::equal(truth, truth + part.size(), v.bytes + (part.begin - cell.range.begin));
        }
        found = found || count == 0;  // nothing is known
        ASSERT_TRUE(found) << "at +" << part.begin - kText << " time " << look.t << "\n"
                           << world.transcript();
        ++looked;
        sure += count == 1 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(sure * 4, looked);
}

}  // namespace
}  // namespace asof::test
