// Sites with pokes of several lengths: kprobes, optprobes, slots and trampolines
// (docs/live-text.md 3.5, 8.2).
#include <gtest/gtest.h>

#include "tests/textstore/text_facts.h"

namespace asof::test {
namespace {

constexpr Addr kProbed = kText + 4;
constexpr Addr kSlot = kText + 0x1000;

TEST(Sites, KprobeAndOptprobeAreOneCell) {
  TextFacts facts;
  facts.layer(kText, "90 90 90 90 41 55 b9 08 00 90 90 90");
  facts.poke(20, kProbed, "41", "cc");
  facts.poke(70, kProbed, "cc 55 b9 08 00", kJmp);
  facts.poke(500, kProbed, kJmp, "cc 55 b9 08 00");
  facts.poke(510, kProbed, "cc", "41");
  const TextStore store = facts.build();
  EXPECT_EQ(store.cell(kKernelSpace, kProbed).range, (AddrRange{kProbed, kProbed + 5}));
  EXPECT_EQ(at(store, kProbed, 5, 19), Texts{"41 55 b9 08 00"});
  EXPECT_EQ(at(store, kProbed, 5, 69), Texts{"cc 55 b9 08 00"});
  EXPECT_EQ(at(store, kProbed, 5, 100), Texts{kJmp});
  EXPECT_EQ(at(store, kProbed, 5, 505), Texts{"cc 55 b9 08 00"});
  EXPECT_EQ(at(store, kProbed, 5, 600), Texts{"41 55 b9 08 00"});
  EXPECT_TRUE(store.notices().empty());
}

TEST(Sites, FirstOldBytesComeFromWhicheverPokeCoversThemFirst) {
  TextFacts facts;  // the same without a snapshot
  facts.poke(20, kProbed, "41", "cc");
  facts.poke(70, kProbed, "cc 55 b9 08 00", kJmp);
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kProbed, 5, 10), Texts{"41 55 b9 08 00"});
  EXPECT_EQ(at(store, kProbed, 5, 30), Texts{"cc 55 b9 08 00"});
}

TEST(Sites, OverlappingInAChainAreOneCell) {
  TextFacts facts;
  facts.layer(kText, "00 01 02 03 04 05 06 07 08 09");
  facts.poke(10, kText + 1, "01 02 03", "11 12 13");
  facts.poke(20, kText + 3, "13 04 05", "23 24 25");
  facts.poke(30, kText + 5, "25 06", "35 36");
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText + 1, 6, 0), Texts{"01 02 03 04 05 06"});
  EXPECT_EQ(at(store, kText + 1, 6, 15), Texts{"11 12 13 04 05 06"});
  EXPECT_EQ(at(store, kText + 1, 6, 25), Texts{"11 12 23 24 25 06"});
  EXPECT_EQ(at(store, kText + 1, 6, 35), Texts{"11 12 23 24 35 36"});
}

TEST(Sites, SlotUsedTwiceClosesSoftly) {
  TextFacts facts;
  facts.layer(kSlot, "", {.rank = kRankEpoch}, 0x1000);
  facts.poke(10, kSlot, "", "41 55 cc");
  facts.poke(20, kSlot, "41 55 cc", "");
  facts.poke(30, kSlot, "", "53 48 cc");
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kSlot, 3, 5), Texts{"?"});
  EXPECT_EQ(at(store, kSlot, 3, 15), Texts{"41 55 cc"});
  EXPECT_EQ(at(store, kSlot, 3, 22), Texts{"41 55 cc"});
  EXPECT_EQ(at(store, kSlot, 3, 35), Texts{"53 48 cc"});
  EXPECT_TRUE(store.notices().empty());
}

TEST(Sites, SlotUsedAgainForALongerInstruction) {
  TextFacts facts;
  facts.layer(kSlot, "", {.rank = kRankEpoch}, 0x1000);
  facts.poke(10, kSlot, "", "41 55 cc");
  facts.poke(20, kSlot, "41 55 cc", "");
  facts.poke(30, kSlot, "", "48 89 e5 90 cc");
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kSlot, 3, 15), Texts{"41 55 cc"});
  EXPECT_EQ(at(store, kSlot, 3, 35), Texts{"48 89 e5"});
  EXPECT_EQ(at(store, kSlot + 3, 2, 15), Texts{"?"});
  EXPECT_EQ(at(store, kSlot + 3, 2, 35), Texts{"90 cc"});
}

TEST(Sites, TrampolineInstalledThenPokedInside) {
  TextFacts facts;
  std::string body;
  for (int i = 0; i < 40; ++i) body += "90 ";
  facts.layer(kSlot, "", {.from = 5, .rank = kRankEpoch}, 64);
  facts.poke(10, kSlot, "", body + kCall);
  facts.poke(20, kSlot + 40, kCall, kJmp);
  facts.poke(30, kSlot, body + kJmp, "");
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kSlot + 40, 5, 15), Texts{kCall});
  EXPECT_EQ(at(store, kSlot + 40, 5, 25), Texts{kJmp});
  EXPECT_EQ(at(store, kSlot + 40, 5, 35), Texts{kJmp});
  EXPECT_EQ(at(store, kSlot, 2, 25), Texts{"90 90"});
  EXPECT_EQ(at(store, kSlot + 45, 2, 25), Texts{"?"});
  EXPECT_TRUE(store.notices().empty());
}

TEST(Sites, RemovalMustFindWhatWasInstalled) {
  TextFacts facts;
  facts.layer(kSlot, "", {.rank = kRankEpoch}, 64);
  facts.poke(10, kSlot, "", "41 55 cc");
  facts.poke(20, kSlot, "53 55 cc", "");
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kSlot, 3, 15), (Texts{"41 55 cc", "53 55 cc"}));
  EXPECT_EQ(at(store, kSlot, 3, 25), Texts{"53 55 cc"});
  EXPECT_EQ(notices_of(store, TextNotice::Kind::kChainBreak).size(), 1U);
}

TEST(Sites, BetweenRemovalAndAnotherContentBothArePossibleWithoutAReport) {
  TextFacts facts;
  facts.layer(kSlot, "", {.rank = kRankEpoch}, 64);
  facts.poke(10, kSlot, "", "41 55 cc");
  facts.poke(20, kSlot, "41 55 cc", "");
  facts.poke(50, kSlot, "53 55 cc", "53 56 cc");
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kSlot, 3, 30), (Texts{"41 55 cc", "53 55 cc"}));
  EXPECT_EQ(at(store, kSlot, 3, 15), Texts{"41 55 cc"});
  EXPECT_TRUE(store.notices().empty());
}

TEST(Sites, InstallOverASnapshotThatAlreadyShowsIt) {
  TextFacts facts;
  facts.layer(kSlot, "41 55 cc 90", {.observed = 50});
  facts.poke(10, kSlot, "", "41 55 cc");
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kSlot, 3, 5), Texts{"?"});  // rolled back: what was there before is not known
  EXPECT_EQ(at(store, kSlot, 3, 15), Texts{"41 55 cc"});
}

TEST(Sites, InstallOverAnEarlierSnapshotKeepsWhatWasBefore) {
  TextFacts facts;
  facts.layer(kSlot, "00 00 00 90", {.observed = 5});
  facts.poke(10, kSlot, "", "41 55 cc");
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kSlot, 3, 7), Texts{"00 00 00"});
  EXPECT_EQ(at(store, kSlot, 3, 15), Texts{"41 55 cc"});
}

}  // namespace
}  // namespace asof::test
