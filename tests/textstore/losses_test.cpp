// Records lost around a site whose chain of changes is consistent: it may have been switched there and back.
#include <gtest/gtest.h>

#include "tests/textstore/text_facts.h"

namespace asof::test {
namespace {

const std::string kNop5 = "0f 1f 44 00 00", kJmp = "e9 01 02 03 04", kOther = "e9 11 12 13 14",
                  kCall = "e8 21 22 23 24";

TEST(Losses, AKeySwitchedBeforeCanHaveBeenOnOrOffInside) {
  TextFacts facts;
  facts.layer(kText, kNop5);
  facts.poke(10, kText, kNop5, kJmp);
  facts.poke(100, kText, kJmp, kNop5);
  facts.builder.add_lost({0, 100, 500, 28309});
  facts.poke(900, kText, kNop5, kJmp);
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 5, 9), Texts{kNop5});
  EXPECT_EQ(at(store, kText, 5, 50), Texts{kJmp});
  EXPECT_EQ(at(store, kText, 5, 100), Texts{kNop5});
  EXPECT_EQ(at(store, kText, 5, 101), (Texts{kNop5, kJmp}));
  EXPECT_EQ(at(store, kText, 5, 500), (Texts{kNop5, kJmp}));
  EXPECT_EQ(at(store, kText, 5, 501), Texts{kNop5});
  EXPECT_EQ(at(store, kText, 5, 900), Texts{kJmp});
}

TEST(Losses, OneLostRecordCannotSwitchThereAndBack) {
  TextFacts facts;
  facts.poke(10, kText, kNop5, kJmp);
  facts.builder.add_lost({0, 100, 500, 1});
  facts.poke(900, kText, kJmp, kNop5);
  EXPECT_EQ(at(facts.build(), kText, 5, 300), Texts{kJmp});
}

// One of the two changes may be that of a CPU without a ring, at any time.
TEST(Losses, OneLostRecordIsEnoughWhereARingMayBeMissing) {
  TextFacts facts;
  facts.all_rings = false;
  facts.poke(10, kText, kNop5, kJmp);
  facts.lost(100, 500);
  facts.poke(900, kText, kJmp, kNop5);
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 5, 50), (Texts{kNop5, kJmp}));
  EXPECT_EQ(at(store, kText, 5, 899), (Texts{kNop5, kJmp}));
  EXPECT_EQ(at(store, kText, 5, 900), Texts{kNop5});
}

TEST(Losses, OneLostRecordAfterTheLastChangeIsEnough) {
  TextFacts facts;
  facts.poke(10, kText, kNop5, kJmp);
  facts.builder.add_lost({0, 100, 500, 1});
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 5, 100), Texts{kJmp});
  EXPECT_EQ(at(store, kText, 5, 101), (Texts{kNop5, kJmp}));
  EXPECT_EQ(at(store, kText, 5, 1000000), (Texts{kNop5, kJmp}));
}

TEST(Losses, BeforeTheFirstChangeACopyBounds) {
  for (const bool copied : {true, false}) {
    TextFacts facts;
    if (copied) facts.layer(kText, kNop5);
    facts.builder.add_lost({3, 100, 200, 5});
    facts.poke(900, kText, kNop5, kJmp);
    const TextStore store = facts.build();
    EXPECT_EQ(at(store, kText, 5, 100), copied ? Texts{kNop5} : (Texts{kNop5, kJmp}));
    EXPECT_EQ(at(store, kText, 5, 150), (Texts{kNop5, kJmp}));
    EXPECT_EQ(at(store, kText, 5, 201), Texts{kNop5});
  }
}

TEST(Losses, AtACallAnythingCanHaveBeen) {
  TextFacts facts;
  facts.poke(10, kText, kNop5, kCall);
  facts.builder.add_lost({0, 100, 500, 2});
  facts.poke(900, kText, kCall, kNop5);
  EXPECT_EQ(at(facts.build(), kText, 5, 300), (Texts{kNop5, "?", kCall}));
}

TEST(Losses, ASiteWithTwoJumpsIsNoKey) {
  TextFacts facts;
  facts.poke(10, kText, kOther, kJmp);
  facts.builder.add_lost({0, 100, 500, 2});
  facts.poke(900, kText, kJmp, kNop5);
  EXPECT_EQ(at(facts.build(), kText, 5, 300), (Texts{kNop5, "?", kJmp, kOther}));
}

// Without the rules of a machine the store cannot know that a key has no third state.
TEST(Losses, WithoutPatchRulesAnythingCanHaveBeenAtAKey) {
  for (const bool rules : {true, false}) {
    TextFacts facts;
    facts.x86_rules = rules;
    facts.poke(10, kText, kNop5, kJmp);
    facts.builder.add_lost({0, 100, 500, 2});
    facts.poke(900, kText, kJmp, kNop5);
    EXPECT_EQ(at(facts.build(), kText, 5, 300), rules ? (Texts{kNop5, kJmp}) : (Texts{kNop5, "?", kJmp}));
  }
}

TEST(Losses, TextThatNoRecordChangesStaysCertain) {
  TextFacts facts;
  facts.layer(kText, kNop5 + " " + kNop5);
  facts.poke(10, kText, kNop5, kJmp);
  facts.builder.add_lost({0, 100, 500, 9});
  EXPECT_EQ(at(facts.build(), kText + 5, 5, 300), Texts{kNop5});
}

TEST(Losses, ACopyAtTheEndBoundsWhatFollowsTheLoss) {
  TextFacts facts;
  facts.layer(kText, kJmp, {.observed = 800});
  facts.poke(10, kText, kNop5, kJmp);
  facts.builder.add_lost({0, 100, 500, 2});
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 5, 300), (Texts{kNop5, kJmp}));
  EXPECT_EQ(at(store, kText, 5, 501), Texts{kJmp});
}

}  // namespace
}  // namespace asof::test
