// Layers: ranks, lifetimes, soft ends, claims, spaces (rules: textstore/facts.h; docs/live-text.md 8.3).
#include <gtest/gtest.h>

#include "tests/textstore/text_facts.h"

namespace asof::test {
namespace {

TEST(Layers, NothingIsKnownWithoutALayer) {
  TextFacts facts;
  facts.layer(kText, "90 90");
  const TextStore store = facts.build();
  EXPECT_EQ(store.cell(kKernelSpace, kText - 1).range, (AddrRange{0, kText}));
  EXPECT_TRUE(store.cell(kKernelSpace, kText - 1).versions.empty());
  EXPECT_EQ(store.cell(kKernelSpace, kText + 2).range, (AddrRange{kText + 2, UINT64_MAX}));
  EXPECT_TRUE(store.cell(kNoSpace, kText).versions.empty());
  EXPECT_TRUE(store.cell(kKernelSpace, UINT64_MAX).versions.empty());
}

TEST(Layers, EmptyStoreIsOneHole) {
  const TextStore store = TextFacts().build();
  EXPECT_EQ(store.cell(kKernelSpace, 5).range, (AddrRange{0, UINT64_MAX}));
  EXPECT_EQ(store.space_count(), 1U);
}

TEST(Layers, HigherRankWins) {
  TextFacts facts;
  facts.layer(kText, "01 02 03 04", {.rank = kRankFallback});
  facts.layer(kText + 1, "12 13", {.rank = kRankSnapshot});
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 1, 0), Texts{"01"});
  EXPECT_EQ(at(store, kText + 1, 2, 0), Texts{"12 13"});
  EXPECT_EQ(at(store, kText + 3, 1, 0), Texts{"04"});
}

TEST(Layers, LowerRankShowsOutsideTheLifetimeOfTheHigher) {
  TextFacts facts;
  facts.layer(kText, "01 02");
  facts.layer(kText, "11 12", {.from = 10, .until = 20, .rank = kRankEpoch});
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 2, 9), Texts{"01 02"});
  EXPECT_EQ(at(store, kText, 2, 10), Texts{"11 12"});
  EXPECT_EQ(at(store, kText, 2, 20), Texts{"11 12"});
  EXPECT_EQ(at(store, kText, 2, 21), Texts{"01 02"});
}

TEST(Layers, EqualRankAndDifferentBytesAreCandidates) {
  TextFacts facts;
  facts.layer(kText, "01", {.until = 50});
  facts.layer(kText, "02", {.from = 30});
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 1, 29), Texts{"01"});
  EXPECT_EQ(at(store, kText, 1, 40), (Texts{"01", "02"}));
  EXPECT_EQ(at(store, kText, 1, 51), Texts{"02"});
}

TEST(Layers, EqualRankAndEqualBytesAreOneVersion) {
  TextFacts facts;
  facts.layer(kText, "01 02", {.until = 50});
  facts.layer(kText, "01 02", {.from = 30});
  const TextStore store = facts.build();
  EXPECT_TRUE(store.cell(kKernelSpace, kText).stable());
}

TEST(Layers, ClaimOfUnknownBytesHidesKnownOnesOfLowerRank) {
  TextFacts facts;
  facts.layer(kText, "01 02 03 04");
  facts.layer(kText + 1, "", {.from = 10, .until = 20, .rank = kRankEpoch}, 2);
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText + 1, 2, 5), Texts{"02 03"});
  EXPECT_EQ(at(store, kText + 1, 2, 15), Texts{"?"});
  EXPECT_EQ(at(store, kText + 3, 1, 15), Texts{"04"});
}

TEST(Layers, FewerBytesThanTheRangeLeaveTheRestUnknown) {
  TextFacts facts;
  const std::vector<uint8_t> two{1, 2};
  facts.builder.add_layer({.range = {kText, kText + 8}, .bytes = two});
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 2, 0), Texts{"01 02"});
  EXPECT_EQ(at(store, kText + 2, 6, 0), Texts{"?"});
}

TEST(Layers, SoftEndLastsUntilTheNextClaim) {
  TextFacts facts;
  facts.layer(kText, "01 02 03 04", {.from = 10, .until = 20, .soft = true, .rank = kRankEpoch});
  facts.layer(kText + 2, "13 14 15", {.from = 40, .rank = kRankEpoch});
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText + 2, 2, 39), Texts{"03 04"});
  EXPECT_EQ(at(store, kText + 2, 2, 40), Texts{"13 14"});
  EXPECT_EQ(at(store, kText, 2, 1000), Texts{"01 02"});  // what nothing claims stays possible
  EXPECT_EQ(at(store, kText, 2, 9), Texts{});
}

TEST(Layers, SoftEndIsNotClaimedByALowerRank) {
  TextFacts facts;
  facts.layer(kText, "01", {.from = 10, .until = 20, .soft = true, .rank = kRankEpoch});
  facts.layer(kText, "02", {.from = 30, .rank = kRankSnapshot});
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 1, 50), Texts{"01"});
}

TEST(Layers, NextLifetimeBeforeTheEndOfTheLastMakesBothCandidates) {
  TextFacts facts;  // KSYMBOL of the next program precedes the unregistration of the last
  facts.layer(kText, "01", {.from = 10, .until = 50, .soft = true, .rank = kRankEpoch});
  facts.layer(kText, "02", {.from = 40, .rank = kRankEpoch});
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 1, 39), Texts{"01"});
  EXPECT_EQ(at(store, kText, 1, 45), (Texts{"01", "02"}));
  EXPECT_EQ(at(store, kText, 1, 51), Texts{"02"});
}

TEST(Layers, SuccessiveProgramsAtOneAddressNeverMix) {
  TextFacts facts;
  for (uint8_t i = 0; i < 100; ++i) {
    facts.layer_bytes(kText + i % 7, std::vector<uint8_t>(19, i),
                      {.from = 100 * i, .until = 100 * i + 50, .soft = true, .rank = kRankEpoch});
  }
  const TextStore store = facts.build();
  for (uint8_t i = 0; i < 100; ++i) {
    std::vector<uint8_t> bytes(19);
    EXPECT_EQ(store.read(kKernelSpace, kText + i % 7, 100 * i + 70, bytes), 19U);
    EXPECT_EQ(bytes, std::vector<uint8_t>(19, i));
  }
}

TEST(Layers, KnownBytesBeatAnEqualUnknownClaimThatIsNotLater) {
  TextFacts facts;  // a trampoline's page as announced, and a neighbour announced later inside it
  facts.layer(kText, "", {.from = 10, .rank = kRankEpoch}, 4096);
  facts.layer(kText + 512, "01 02", {.from = 20, .rank = kRankEpoch});
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText + 512, 2, 15), Texts{"?"});
  EXPECT_EQ(at(store, kText + 512, 2, 25), Texts{"01 02"});
  EXPECT_EQ(at(store, kText + 600, 2, 25), Texts{"?"});
}

TEST(Layers, ProcessTextIsThereFromTheBeginning) {
  TextFacts facts;
  const Space space = facts.builder.add_space();
  facts.layer(0x401000, "55 c3", {.from = 100, .rank = kRankMapping, .space = space});
  const TextStore store = facts.build();
  EXPECT_TRUE(store.cell(space, 0x401000).stable());
  EXPECT_EQ(at(store, 0x401000, 2, 50, space), Texts{"55 c3"});
  EXPECT_TRUE(store.cell(kKernelSpace, 0x401000).versions.empty());
}

TEST(Layers, KernelEpochsKeepTheirTimes) {
  TextFacts facts;
  facts.layer(kText, "55 c3", {.from = 100, .rank = kRankEpoch});
  const TextStore store = facts.build();
  EXPECT_FALSE(store.cell(kKernelSpace, kText).stable());
  EXPECT_EQ(at(store, kText, 2, 99), Texts{});
}

TEST(Layers, ReplacedProcessMappingKeepsBothTimes) {
  TextFacts facts;
  const Space space = facts.builder.add_space();
  facts.layer(0x401000, "55 c3",
              {.from = 100, .until = 100, .soft = true, .rank = kRankMapping, .space = space});
  facts.layer(0x401000, "53 c3",
              {.from = 200, .until = 200, .soft = true, .rank = kRankMapping, .space = space});
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, 0x401000, 2, 150, space), Texts{"55 c3"});
  EXPECT_EQ(at(store, 0x401000, 2, 250, space), Texts{"53 c3"});
  EXPECT_EQ(at(store, 0x401000, 2, 50, space), Texts{});
}

TEST(Layers, HiddenEdgesDoNotCutCells) {
  TextFacts facts;
  facts.layer(kText, "01 02 03 04");
  facts.layer(kText + 1, "02 03", {.rank = kRankFallback});
  const TextStore store = facts.build();
  EXPECT_EQ(store.cell(kKernelSpace, kText + 2).range, (AddrRange{kText, kText + 4}));
}

TEST(Forks, ChildSeesWhatTheParentHeld) {
  TextFacts facts;
  const Space parent = facts.builder.add_space();
  facts.layer(0x1000, "01", {.from = 10, .rank = kRankMapping, .space = parent});
  facts.layer(0x2000, "02", {.from = 10, .until = 20, .rank = kRankMapping, .space = parent});
  facts.layer(0x3000, "03", {.from = 10, .until = 90, .rank = kRankMapping, .space = parent});
  facts.layer(0x4000, "04", {.from = 60, .rank = kRankMapping, .space = parent});
  const Space child = facts.builder.fork_space(parent, 50);
  facts.layer(0x5000, "05", {.from = 55, .rank = kRankMapping, .space = parent});
  facts.layer(0x6000, "06", {.from = 70, .rank = kRankMapping, .space = child});
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, 0x1000, 1, 100, child), Texts{"01"});
  EXPECT_EQ(at(store, 0x2000, 1, 100, child), Texts{});      // gone before the fork
  EXPECT_EQ(at(store, 0x3000, 1, 100, child), Texts{"03"});  // the parent's later end is not the child's
  EXPECT_EQ(at(store, 0x3000, 1, 100, parent), Texts{});
  EXPECT_EQ(at(store, 0x4000, 1, 100, child), Texts{});  // not yet at the fork
  EXPECT_EQ(at(store, 0x5000, 1, 100, child), Texts{});  // added later
  EXPECT_EQ(at(store, 0x6000, 1, 100, child), Texts{"06"});
  EXPECT_EQ(at(store, 0x6000, 1, 100, parent), Texts{});
}

TEST(Forks, ChildReplacesWhatItInherited) {
  TextFacts facts;
  const Space parent = facts.builder.add_space();
  facts.layer(0x1000, "01", {.from = 10, .until = 90, .rank = kRankMapping, .space = parent});
  const Space child = facts.builder.fork_space(parent, 50);
  facts.layer(0x1000, "02", {.from = 70, .rank = kRankMapping, .space = child});
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, 0x1000, 1, 69, child), Texts{"01"});
  EXPECT_EQ(at(store, 0x1000, 1, 70, child), Texts{"02"});
  EXPECT_EQ(at(store, 0x1000, 1, 80, parent), Texts{"01"});
}

TEST(Forks, GrandchildrenInherit) {
  TextFacts facts;
  Space space = facts.builder.add_space();
  for (Time t = 0; t < 100; ++t) {
    facts.layer(0x1000 + 16 * static_cast<Addr>(t), "01", {.from = t, .rank = kRankMapping, .space = space});
    space = facts.builder.fork_space(space, t);
  }
  const TextStore store = facts.build();
  for (Time t = 0; t < 100; ++t) {
    EXPECT_EQ(at(store, 0x1000 + 16 * static_cast<Addr>(t), 1, 200, space), Texts{"01"});
  }
}

TEST(Forks, ManyChildrenCostLittle) {
  TextFacts facts;
  const Space parent = facts.builder.add_space();
  for (Addr i = 0; i < 500; ++i) {
    facts.layer(0x1000 * (i + 1), "01", {.from = 1, .rank = kRankMapping, .space = parent});
  }
  Space last = parent;
  for (int i = 0; i < 100000; ++i) last = facts.builder.fork_space(parent, 10);
  const TextStore store = facts.build();
  EXPECT_EQ(store.space_count(), 100002U);
  EXPECT_EQ(at(store, 0x1000, 1, 20, last), Texts{"01"});
  // One table for all of them.
  EXPECT_EQ(store.cell(last, 0x1000).versions.data(), store.cell(parent, 0x1000).versions.data());
}

}  // namespace
}  // namespace asof::test
