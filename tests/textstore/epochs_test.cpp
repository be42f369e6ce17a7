// Pokes and the lifetimes of programs: before the announcement, after the end, in a successor
// (docs/live-text.md 3.6, 8.3).
#include <gtest/gtest.h>

#include "tests/textstore/text_facts.h"

namespace asof::test {
namespace {

using Kind = TextNotice::Kind;
const std::string kNops = "90 90 90 90";

LayerSpec program(Time from, Time until, Time observed) {
  return {.from = from, .until = until, .soft = true, .observed = observed, .rank = kRankEpoch};
}

TEST(Epochs, PokesBeforeTheAnnouncementAreInTheImage) {
  TextFacts facts;
  facts.poke(1, kText + 4, kNop5, kJmp);
  facts.layer(kText, kNops + kJmp + kNops, program(3, kTimeMax, 9));
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText + 4, 5, 10), Texts{kJmp});
  EXPECT_EQ(at(store, kText + 4, 5, 3), Texts{kJmp});
  EXPECT_EQ(at(store, kText, 4, 10), Texts{kNops});
  EXPECT_TRUE(store.notices().empty());
}

TEST(Epochs, PokesBeforeTheAnnouncementAreAppliedToAnImageFromBefore) {
  TextFacts facts;
  facts.poke(1, kText + 4, kNop5, kJmp);
  facts.layer(kText, kNops + kNop5 + kNops, program(3, kTimeMax, kTimeMin));
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText + 4, 5, 10), Texts{kJmp});
}

TEST(Epochs, PokesBeforeTheAnnouncementDoNotBlameTheSnapshotBelow) {
  TextFacts facts;
  facts.layer(kText, "cc cc cc cc cc cc cc cc cc cc cc cc cc");
  facts.poke(1, kText + 4, kNop5, kJmp);
  facts.layer(kText, kNops + kJmp + kNops, program(3, kTimeMax, 9));
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText + 4, 5, 10), Texts{kJmp});
  EXPECT_TRUE(notices_of(store, Kind::kBaselineMismatch).empty());
}

TEST(Epochs, PokesAfterTheEndChangeTheClosingLifetime) {
  TextFacts facts;
  facts.layer(kText, kNops + kNop5 + kNops, program(3, 100, 9));
  facts.poke(107, kText + 4, kNop5, kJmp);
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText + 4, 5, 50), Texts{kNop5});
  EXPECT_EQ(at(store, kText + 4, 5, 106), Texts{kNop5});
  EXPECT_EQ(at(store, kText + 4, 5, 107), Texts{kJmp});
  EXPECT_TRUE(store.notices().empty());
}

TEST(Epochs, PokesOfOneProgramDoNotReachIntoTheNext) {
  TextFacts facts;  // the same program again: same address, same bytes, its own pokes
  facts.layer(kText, kNops + kNop5 + kNops, program(10, 100, 15));
  facts.poke(50, kText + 4, kNop5, kJmp);
  facts.layer(kText, kNops + kNop5 + kNops, program(200, 300, kTimeMin));
  facts.poke(250, kText + 4, kNop5, kCall);
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText + 4, 5, 20), Texts{kNop5});
  EXPECT_EQ(at(store, kText + 4, 5, 60), Texts{kJmp});
  EXPECT_EQ(at(store, kText + 4, 5, 150), Texts{kJmp});
  EXPECT_EQ(at(store, kText + 4, 5, 200), Texts{kNop5});
  EXPECT_EQ(at(store, kText + 4, 5, 260), Texts{kCall});
  EXPECT_TRUE(store.notices().empty());
}

TEST(Epochs, PokesOfTheNextProgramBeforeItsAnnouncementLeaveTheLastOneAlone) {
  TextFacts facts;  // the pack's chunk was reused; the fix-up of the next program precedes its symbol
  facts.layer(kText, kNops + kNop5 + kNops, program(10, 100, 15));
  facts.poke(150, kText + 4, kCall, kJmp);
  facts.layer(kText, kNops + kJmp + kNops, program(200, 300, 210));
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText + 4, 5, 50), Texts{kNop5});
  EXPECT_EQ(at(store, kText + 4, 5, 149), Texts{kNop5});
  EXPECT_EQ(at(store, kText + 4, 5, 150), Texts{kJmp});
  EXPECT_EQ(at(store, kText + 4, 5, 200), Texts{kJmp});
  EXPECT_TRUE(store.notices().empty());
}

TEST(Epochs, PokeAfterTheEndOfAProgramWithoutBytesTellsNothingOfIt) {
  TextFacts facts;
  facts.layer(kText, "", program(10, 100, kTimeMin), 16);
  facts.poke(150, kText + 4, kNop5, kJmp);
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText + 4, 5, 50), Texts{"?"});
  EXPECT_EQ(at(store, kText + 4, 5, 160), Texts{kJmp});
}

TEST(Epochs, SitesOfTwoProgramsThatOverlapAreOneCellWithTwoChains) {
  TextFacts facts;
  facts.layer(kText, "01 02 03 04 05 06 07 08 09 0a", program(10, 100, 15));
  facts.layer(kText, "11 12 13 14 15 16 17 18 19 1a", program(200, 300, 205));
  facts.poke(50, kText + 4, "05 06 07", "a5 a6 a7");
  facts.poke(250, kText + 2, "13 14 15", "b3 b4 b5");
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText + 2, 5, 20), Texts{"03 04 05 06 07"});
  EXPECT_EQ(at(store, kText + 2, 5, 60), Texts{"03 04 a5 a6 a7"});
  EXPECT_EQ(at(store, kText + 2, 5, 210), Texts{"13 14 15 16 17"});
  EXPECT_EQ(at(store, kText + 2, 5, 260), Texts{"b3 b4 b5 16 17"});
  EXPECT_TRUE(store.notices().empty());
}

TEST(Epochs, ProgramWithoutAnImageIsUnknownThoughItsPredecessorWasNot) {
  TextFacts facts;
  facts.layer(kText, "01 02 03 04", program(10, 100, 15));
  facts.layer(kText, "", program(200, 300, kTimeMin), 4);
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 4, 150), Texts{"01 02 03 04"});
  EXPECT_EQ(at(store, kText, 4, 250), Texts{"?"});
}

TEST(Epochs, LayerBeneathAShortLifetimeComesBackWithItsPokes) {
  TextFacts facts;
  facts.layer(kText, "90 " + kNop5);
  facts.poke(50, kText + 1, kNop5, kJmp);
  facts.layer(kText, "90 " + kCall, {.from = 100, .until = 200, .rank = kRankEpoch});
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText + 1, 5, 40), Texts{kNop5});
  EXPECT_EQ(at(store, kText + 1, 5, 60), Texts{kJmp});
  EXPECT_EQ(at(store, kText + 1, 5, 150), Texts{kCall});
  EXPECT_EQ(at(store, kText + 1, 5, 250), Texts{kJmp});
}

TEST(Epochs, ObservedAfterItsHardEndIsRolledBack) {
  TextFacts facts;
  facts.layer(kText, "90 " + kJmp, {.from = 10, .until = 100, .observed = 200, .rank = kRankEpoch});
  facts.poke(150, kText + 1, kNop5, kJmp);
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText + 1, 5, 50), Texts{kNop5});
  EXPECT_EQ(at(store, kText + 1, 5, 160), Texts{kJmp});
}

}  // namespace
}  // namespace asof::test
