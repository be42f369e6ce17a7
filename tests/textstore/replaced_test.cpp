// Memory reused by another module without a record: the only evidence is the poke that finds bytes other than
// the module's (docs/live-text.md 3.7, row M03 of 8.3).
#include <gtest/gtest.h>

#include "tests/textstore/text_facts.h"

namespace asof::test {
namespace {

const std::string kNop5 = "0f 1f 44 00 00", kJmp = "e9 01 02 03 04", kCall = "e8 21 22 23 24";

TextFacts module_with_foreign_poke(bool replaceable) {
  TextFacts facts;
  facts.layer(kText, "90 " + kNop5 + " 90", {.replaceable = replaceable});
  facts.poke(30, kText + 1, kNop5, kJmp);
  facts.poke(200, kText + 1, kCall, kNop5);
  return facts;
}

TEST(Replaced, AModuleIsGoneFromTheContradictionOn) {
  TextFacts facts = module_with_foreign_poke(true);
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 1, 30), Texts{"90"});
  EXPECT_EQ(at(store, kText, 1, 31), (Texts{"90", "?"}));
  EXPECT_EQ(at(store, kText, 1, 199), (Texts{"90", "?"}));
  EXPECT_EQ(at(store, kText, 1, 200), Texts{"?"});
  EXPECT_EQ(at(store, kText + 1, 5, 100), (Texts{kCall, kJmp}));
  EXPECT_EQ(at(store, kText + 1, 5, 200), Texts{kNop5});
  ASSERT_EQ(store.notices().size(), 1U);
  EXPECT_EQ(store.notices()[0].kind, TextNotice::Kind::kChainBreak);
}

TEST(Replaced, TheKernelStays) {
  TextFacts facts = module_with_foreign_poke(false);
  EXPECT_EQ(at(facts.build(), kText, 1, 1000), Texts{"90"});
}

TEST(Replaced, ALossExplainsTheBreak) {
  TextFacts facts = module_with_foreign_poke(true);
  facts.lost(50, 60);
  EXPECT_EQ(at(facts.build(), kText, 1, 1000), Texts{"90"});
}

TEST(Replaced, TheFirstPokeCanTell) {
  TextFacts facts;
  facts.layer(kText, "90 " + kNop5 + " 90", {.replaceable = true});
  facts.poke(100, kText + 1, kCall, kJmp);
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 1, 99), (Texts{"90", "?"}));
  EXPECT_EQ(at(store, kText, 1, 100), Texts{"?"});
}

TEST(Replaced, ACopyThatShowsALaterStateWasReadLater) {
  TextFacts facts;
  facts.layer(kText, "90 " + kNop5 + " 90", {.replaceable = true});
  facts.poke(100, kText + 1, kCall, kNop5);
  EXPECT_EQ(at(facts.build(), kText, 1, 100), Texts{"90"});
}

}  // namespace
}  // namespace asof::test
