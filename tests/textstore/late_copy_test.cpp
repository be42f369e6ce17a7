// A copy of memory that shows bytes which the records date later, and two equal records in sequence: usually
// a copy that was read later than its time says, and one poke that was recorded twice. Where records were
// lost in between, both may be unrecorded changes.
#include <gtest/gtest.h>

#include "tests/textstore/text_facts.h"

namespace asof::test {
namespace {

const Texts kEither = {kNop5, kJmp};

TEST(LateCopy, ShowsALaterStateAndNothingIsLost) {
  TextFacts facts;
  facts.layer(kText, kJmp, {.observed = 10});
  facts.poke(40, kText, kNop5, kJmp);
  const TextStore store = facts.build();
  for (const Time t : {5, 15, 39}) EXPECT_EQ(at(store, kText, 5, t), Texts{kNop5});
  EXPECT_EQ(at(store, kText, 5, 40), Texts{kJmp});
}

// It may have been so at 10, and the record of the change back is among the lost ones.
TEST(LateCopy, ShowsALaterStateThatALossCanHaveUndone) {
  TextFacts facts;
  facts.layer(kText, kJmp, {.observed = 10});
  facts.lost(20, 30);
  facts.poke(40, kText, kNop5, kJmp);
  const TextStore store = facts.build();
  for (const Time t : {10, 15, 25, 30}) EXPECT_EQ(at(store, kText, 5, t), kEither) << t;
  EXPECT_EQ(at(store, kText, 5, 31), Texts{kNop5});
  EXPECT_EQ(at(store, kText, 5, 40), Texts{kJmp});
}

TEST(LateCopy, ShowsTheStateAfterTheNextButOneChangeAndALossIsBetween) {
  TextFacts facts;
  facts.layer(kText, kNop5, {.observed = 10});
  facts.lost(20, 30);
  facts.poke(40, kText, kJmp, kNop5);
  facts.poke(50, kText, kNop5, kJmp);
  facts.poke(60, kText, kJmp, kNop5);
  const TextStore store = facts.build();
  for (const Time t : {10, 15, 25, 30}) EXPECT_EQ(at(store, kText, 5, t), kEither) << t;
  EXPECT_EQ(at(store, kText, 5, 35), Texts{kJmp});
  EXPECT_EQ(at(store, kText, 5, 45), Texts{kNop5});
}

// A site of two layers, one of them unknown and observed after a poke that came when the other had begun: nothing was
// copied, so nothing that was not undone can be in a copy. Found by tests/fuzz/text_store_fuzz.cpp.
TEST(LateCopy, OfUnknownBytesShowsNothing) {
  TextFacts facts;
  facts.layer(kText, "", {.observed = 153'000, .rank = kRankEpoch}, 1);
  facts.layer(kText, "", {.from = 150'000, .observed = 3'000}, 15);
  facts.poke(100, kText, "90 62 62 61", "62 62 62 62");
  facts.poke(150'121, kText, "62", "61");
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 4, 99), Texts{"90 62 62 61"});
  EXPECT_EQ(at(store, kText, 4, 100), Texts{"62 62 62 62"});
  EXPECT_EQ(at(store, kText, 4, 150'121), Texts{"?"});  // of the layer that began at 150,000
}

// The same in a site of one layer, which shows again after another one.
TEST(LateCopy, OfUnknownBytesDoesNotHideWhatWasPoked) {
  TextFacts facts;
  facts.layer(kText, "90", {.from = 150'000, .until = 150'000});
  facts.layer(kText, "", {.from = 0, .observed = 233'000}, 1);
  facts.poke(100, kText, "", "61");
  facts.poke(200'000, kText, "", "61");
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 1, 149'999), Texts{"61"});
  EXPECT_EQ(at(store, kText, 1, 150'000), Texts{"90"});
  EXPECT_EQ(at(store, kText, 1, 150'001), Texts{"61"});
}

TEST(EqualPokes, AreOneThatWasRecordedTwice) {
  TextFacts facts;
  facts.layer(kText, kNop5);
  facts.poke(100'000, kText, kNop5, kJmp);
  facts.poke(103'000, kText, kNop5, kJmp);
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 5, 101'500), Texts{kJmp});
  EXPECT_EQ(notices_of(store, TextNotice::Kind::kDuplicatePoke).size(), 1U);
  EXPECT_TRUE(notices_of(store, TextNotice::Kind::kChainBreak).empty());
}

TEST(EqualPokes, AreTwoWhenTheOneBetweenCanBeAmongTheLost) {
  TextFacts facts;
  facts.layer(kText, kNop5);
  facts.poke(100'000, kText, kNop5, kJmp);
  facts.lost(101'000, 102'000);
  facts.poke(103'000, kText, kNop5, kJmp);
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 5, 101'500), kEither);
  EXPECT_EQ(at(store, kText, 5, 102'500), Texts{kNop5});
  EXPECT_EQ(at(store, kText, 5, 103'000), Texts{kJmp});
}

// Switched there, back and there again within the time in which equal records count as one.
TEST(EqualPokes, ChangeThereAndBackWithinMicrosecondsIsKept) {
  TextFacts facts;
  facts.layer(kText, kNop5);
  facts.poke(100'000, kText, kNop5, kJmp);
  facts.poke(101'000, kText, kJmp, kNop5);
  facts.poke(102'000, kText, kNop5, kJmp);
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 5, 100'500), Texts{kJmp});
  EXPECT_EQ(at(store, kText, 5, 101'500), Texts{kNop5});
  EXPECT_EQ(at(store, kText, 5, 102'500), Texts{kJmp});
  EXPECT_TRUE(store.notices().empty());
}

}  // namespace
}  // namespace asof::test
