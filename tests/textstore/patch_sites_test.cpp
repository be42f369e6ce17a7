// Sites that the kernel patches, without a single record: after a loss they may differ from the copy.
#include <gtest/gtest.h>

#include "tests/textstore/text_facts.h"

namespace asof::test {
namespace {

constexpr Addr kSite = kText + 8;

class PatchSites : public testing::Test {
 protected:
  PatchSites() { bytes_ = from_hex("90 90 90 90 90 90 90 90 " + kNop5 + " 90 90"); }
  void copy(Time observed) {
    facts_.layer_bytes(kText, bytes_, {.observed = observed});
    facts_.builder.add_site({.range = range_of(kSite, 5), .bytes = jump_});
  }
  Texts site(const TextStore& store, Time t) { return at(store, kSite, 5, t); }

  TextFacts facts_;
  std::vector<uint8_t> bytes_;
  const std::vector<uint8_t> jump_ = from_hex(kJmp);
  const Texts both_{kNop5, kJmp};
};

TEST_F(PatchSites, WithoutALossAreAsTheCopyShows) {
  copy(kTimeMin);
  EXPECT_EQ(site(facts_.build(), 100), Texts{kNop5});
}

TEST_F(PatchSites, AreDoubtfulFromTheLossOn) {
  copy(kTimeMin);
  facts_.lost(100, 200);
  const TextStore store = facts_.build();
  EXPECT_EQ(site(store, 100), Texts{kNop5});
  EXPECT_EQ(site(store, 101), both_);
  EXPECT_EQ(site(store, kTimeMax), both_);
  EXPECT_EQ(at(store, kText, 8, 150), Texts{"90 90 90 90 90 90 90 90"});  // next to the site
  EXPECT_EQ(at(store, kSite + 5, 2, 150), Texts{"90 90"});
}

TEST_F(PatchSites, ACopyMadeAfterTheLossShowsTheOutcome) {
  copy(300);
  facts_.lost(100, 200);
  const TextStore store = facts_.build();
  EXPECT_EQ(site(store, 50), both_);
  EXPECT_EQ(site(store, 200), both_);
  EXPECT_EQ(site(store, 201), Texts{kNop5});
  EXPECT_EQ(site(store, kTimeMax), Texts{kNop5});
}

TEST_F(PatchSites, ACopyMadeInsideALossBoundsNothing) {
  copy(150);
  facts_.lost(100, 200);
  const TextStore store = facts_.build();
  for (const Time t : {Time{50}, Time{149}, Time{150}, Time{151}, Time{200}, Time{900}})
    EXPECT_EQ(site(store, t), both_) << t;
}

TEST_F(PatchSites, BetweenTwoLossesTheCopyIsSure) {
  copy(300);
  facts_.lost(100, 200);
  facts_.lost(400, 500);
  const TextStore store = facts_.build();
  EXPECT_EQ(site(store, 200), both_);
  EXPECT_EQ(site(store, 201), Texts{kNop5});
  EXPECT_EQ(site(store, 400), Texts{kNop5});
  EXPECT_EQ(site(store, 401), both_);
}

TEST_F(PatchSites, WithPokesAreLeftToThem) {
  copy(kTimeMin);
  facts_.lost(100, 200);
  facts_.poke(300, kSite, kNop5, kJmp);
  const TextStore store = facts_.build();
  EXPECT_EQ(site(store, 100), Texts{kNop5});
  EXPECT_EQ(site(store, 250), Texts{kNop5});
  EXPECT_EQ(site(store, 300), Texts{kJmp});
}

TEST_F(PatchSites, CaughtWhileBeingPokedAreEither) {
  const auto caught = from_hex("cc 1f 44 00 00");
  std::copy(caught.begin(), caught.end(), bytes_.begin() + 8);
  const auto nop = from_hex(kNop5);
  facts_.builder.add_site({.range = range_of(kSite, 5), .bytes = nop});
  copy(300);
  facts_.lost(100, 200);
  const TextStore store = facts_.build();
  for (const Time t : {Time{50}, Time{250}, Time{350}})
    EXPECT_EQ(site(store, t), (Texts{kNop5, "cc 1f 44 00 00", kJmp})) << t;
}

TEST_F(PatchSites, WhereNobodyRecordsAreDoubtfulAlways) {
  facts_.layer_bytes(kText, bytes_);
  facts_.builder.add_site({.range = range_of(kSite, 5), .bytes = jump_, .always = true});
  EXPECT_EQ(site(facts_.build(), 100), both_);
}

TEST_F(PatchSites, HoldOnlyWhereTextIsKnownAndWhole) {
  facts_.layer_bytes(kText, {bytes_.begin(), bytes_.begin() + 10});
  facts_.builder.add_site({.range = range_of(kSite, 5), .bytes = jump_});
  facts_.lost(100, 200);
  const TextStore store = facts_.build();
  EXPECT_EQ(at(store, kSite, 2, 150), Texts{"0f 1f"});
  EXPECT_TRUE(store.cell(kKernelSpace, kSite + 3).versions.empty());
}

// The bytes under a site are searched for in the layers before it: forged layers must not make that take
// forever, and what was left out is reported.
TEST_F(PatchSites, TooManyAreReported) {
  constexpr Addr kFirst = kText + 0x8000, kLast = kText + 0xffff;
  facts_.layer_bytes(kText, std::vector<uint8_t>(1 << 16, 0x90));
  for (Addr a = kText; a < kText + 20'000; ++a) facts_.layer_bytes(a, {0x90}, {.rank = kRankFallback});
  for (Addr a = kFirst; a < kLast; ++a)
    facts_.builder.add_site({.range = range_of(a, 1), .bytes = std::span(jump_).first(1)});
  facts_.lost(100, 200);
  const TextStore store = facts_.build();
  EXPECT_EQ(at(store, kFirst, 1, 150), (Texts{"90", "e9"}));
  EXPECT_EQ(at(store, kLast - 1, 1, 150), Texts{"90"});
  EXPECT_EQ(notices_of(store, TextNotice::Kind::kTooComplex).size(), 1U);
}

}  // namespace
}  // namespace asof::test
