// Facts that no kernel produces: the store stays small and fast, answers unknown, and gives a notice.
#include <gtest/gtest.h>

#include "arch/x86/patch_rules.h"
#include "tests/support/sim_random.h"
#include "tests/textstore/text_facts.h"

namespace asof::test {
namespace {

using Kind = TextNotice::Kind;

TEST(HostileFacts, PokesOverlappingWithoutEndMakeTheRangeUnknown) {
  Builder builder;
  builder.set_patch_rules(x86::kPatchRules);
  const std::vector<uint8_t> bytes(64, 0x90);
  for (uint64_t i = 0; i < 60000; ++i) {
    builder.add_poke({kText + 32 * i, static_cast<Time>(i), bytes, bytes, 0, i});
  }
  const TextStore store = std::move(builder).build();  // one site of 2 MB with 60,000 states
  const Cell cell = store.cell(kKernelSpace, kText + 1000);
  EXPECT_EQ(cell.range.size(), 32 * 59999 + 64U);
  EXPECT_LE(cell.versions.size(), 60001U);
}

TEST(HostileFacts, ChangingPokesOverlappingWithoutEndRunOutOfBudget) {
  Builder builder;
  builder.set_patch_rules(x86::kPatchRules);
  SimRandom random(1);
  std::vector<uint8_t> old_bytes(64), new_bytes(64);
  for (uint64_t i = 0; i < 60000; ++i) {
    for (uint8_t& b : new_bytes) b = static_cast<uint8_t>(random.next());
    builder.add_poke({kText + 32 * i, static_cast<Time>(i) * 100000, old_bytes, new_bytes, 0, i});
  }
  const TextStore store = std::move(builder).build();
  EXPECT_FALSE(notices_of(store, Kind::kTooComplex).empty());
  for (const std::string& text : at(store, kText + 1000000, 1, 5'000'000'000)) EXPECT_EQ(text, "?");
}

TEST(HostileFacts, InstallsOverEachOther) {
  Builder builder;
  builder.set_patch_rules(x86::kPatchRules);
  const std::vector<uint8_t> big(60000, 0x90), small(2, 0x66);
  for (uint64_t i = 0; i < 3000; ++i) {
    builder.add_poke(
        {kText + i, static_cast<Time>(2 * i) * 10000, {}, std::span(big).first(60000 - i), 0, i});
    builder.add_poke({kText + 20 * i, static_cast<Time>(2 * i + 1) * 10000, small, small, 0, i});
  }
  const TextStore store = std::move(builder).build();
  EXPECT_EQ(store.pokes().size(), 6000U);
}

TEST(HostileFacts, LayersOverEachOtherInSpace) {
  TextFacts facts;
  const Space space = facts.builder.add_space();
  for (uint64_t i = 1; i < 20000; ++i) {
    facts.layer(0x1000, "", {.from = static_cast<Time>(i), .rank = static_cast<int>(i % 5), .space = space},
                4096 * i);
  }
  const TextStore store = facts.build();
  EXPECT_FALSE(notices_of(store, Kind::kTooComplex).empty());
  EXPECT_EQ(at(store, 0x1000, 1, 5, space).size(), 1U);
}

TEST(HostileFacts, TooManyCandidatesAreUnknown) {
  TextFacts facts;
  for (uint8_t i = 0; i < 40; ++i) facts.layer(kText, to_hex(std::vector{i}), {.from = 10 * i});
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 1, 155).size(), 16U);
  EXPECT_EQ(at(store, kText, 1, 165), Texts{"?"});
  EXPECT_EQ(at(store, kText, 1, 1000), Texts{"?"});
}

TEST(HostileFacts, LayersOverEachOtherInTimeAndPokedAllOver) {
  TextFacts facts;
  for (int i = 0; i < 3000; ++i) {
    facts.layer(kText, "", {.from = i * 10, .until = i * 10 + 5, .soft = true, .rank = kRankEpoch}, 65536);
  }
  for (uint64_t i = 0; i < 8000; ++i) {
    facts.poke(static_cast<Time>(i * 3), kText + 8 * i, "0a 0b", "0c 0d");
  }
  const TextStore store = facts.build();
  EXPECT_EQ(store.pokes().size(), 8000U);
}

TEST(HostileFacts, TiesWithoutEnd) {
  Builder builder;
  builder.set_patch_rules(x86::kPatchRules);
  SimRandom random(7);
  std::vector<std::vector<uint8_t>> values;
  for (int i = 0; i < 256; ++i) values.push_back({static_cast<uint8_t>(i)});
  for (uint64_t i = 0; i < 65536; ++i) {
    builder.add_poke({kText, 5, values[i >> 8], values[i & 255], 0, random.next()});
  }
  for (uint64_t i = 0; i < 60000; ++i) {
    builder.add_poke(
        {kText + 8, static_cast<Time>(i / 6), values[random.below(256)], values[random.below(256)], 0, i});
  }
  const TextStore store = std::move(builder).build();
  EXPECT_EQ(at(store, kText, 1, 100).size(), 1U);
}

TEST(HostileFacts, ForksOfForksWithChangingLayers) {
  TextFacts facts;
  Space space = facts.builder.add_space();
  for (int i = 0; i < 8000; ++i) {
    facts.layer(0x1000 + 4096 * static_cast<Addr>(i), "90",
                {.from = i, .until = 1000000, .rank = kRankMapping, .space = space});
    space = facts.builder.fork_space(space, i);
  }
  const TextStore store = facts.build();
  EXPECT_EQ(store.space_count(), 8002U);
  EXPECT_FALSE(notices_of(store, Kind::kTooComplex).empty());
}

TEST(HostileFacts, ReversedAndEmptyIntervalsAreIgnored) {
  TextFacts facts;
  facts.layer(kText, "01", {.from = 10, .until = 5});
  facts.layer(kText + 1, "", {}, 0);
  facts.lost(10, 5);
  facts.lost(10, 10);
  facts.poke(1, kText + 2, "", "");
  const TextStore store = facts.build();
  EXPECT_TRUE(store.cell(kKernelSpace, kText).versions.empty());
  EXPECT_TRUE(store.pokes().empty());
}

}  // namespace
}  // namespace asof::test
