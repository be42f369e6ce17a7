// The chain of pokes at one site: the bytes before, between and after them (rules: textstore/builder.h).
#include <gtest/gtest.h>

#include "tests/textstore/text_facts.h"

namespace asof::test {
namespace {

constexpr Addr kSite = kText + 16;

std::string text_with(const std::string& site_bytes) {
  return "90 90 90 90 90 90 90 90 90 90 90 90 90 90 90 90 " + site_bytes +
         " 90 90 90 90 90 90 90 90 90 90 90";
}

TEST(Pokes, OldBeforeNewAfter) {
  TextFacts facts;
  facts.layer(kText, text_with(kNop5));
  facts.poke(100, kSite, kNop5, kJmp);
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kSite, 5, 50), Texts{kNop5});
  EXPECT_EQ(at(store, kSite, 5, 99), Texts{kNop5});
  EXPECT_EQ(at(store, kSite, 5, 100), Texts{kJmp});
  EXPECT_EQ(at(store, kSite, 5, 150), Texts{kJmp});
  EXPECT_EQ(candidates(store, kSite, 5, {90, 110}), (Texts{kNop5, kJmp}));
  EXPECT_TRUE(store.notices().empty());
}

TEST(Pokes, VersionsCarryTheirOrigin) {
  TextFacts facts;
  const OriginRef snapshot = facts.layer(kText, text_with(kNop5));
  facts.poke(100, kSite, kNop5, kJmp);
  facts.poke(200, kSite, kJmp, kNop5);
  const TextStore store = facts.build();
  const Cell cell = store.cell(kKernelSpace, kSite);
  ASSERT_EQ(cell.versions.size(), 3U);
  EXPECT_EQ(cell.versions[0].origin, snapshot);
  EXPECT_EQ(cell.versions[1].origin, kPokeBit | 0U);
  EXPECT_EQ(cell.versions[2].origin, kPokeBit | 1U);
  EXPECT_EQ(store.pokes()[1].time, 200);
  EXPECT_EQ(to_hex(store.pokes()[1].old_bytes()), kJmp);
  EXPECT_EQ(store.origin(cell.versions[1].origin).kind, OriginKind::kPoke);
  EXPECT_EQ(store.origin(snapshot).name, "layer");
}

// Bytes that only the record of the first poke knows are not what it wrote.
TEST(Pokes, TextBeforeTheFirstPokeIsNotOfThatPoke) {
  TextFacts facts;
  facts.poke(100, kSite, kNop5, kJmp);
  facts.poke(200, kSite, kJmp, kNop5);
  const TextStore store = facts.build();
  const Cell cell = store.cell(kKernelSpace, kSite);
  ASSERT_EQ(cell.versions.size(), 3U);
  EXPECT_TRUE(is_before_poke(cell.versions[0].origin));
  EXPECT_EQ(poke_index(cell.versions[0].origin), 0U);
  EXPECT_EQ(store.origin(cell.versions[0].origin).kind, OriginKind::kPoke);
  EXPECT_EQ(cell.versions[1].origin, kPokeBit | 0U);
  EXPECT_EQ(cell.versions[2].origin, kPokeBit | 1U);
}

TEST(Pokes, TextAroundASiteIsOneStableCellOnEachSide) {
  TextFacts facts;
  facts.layer(kText, text_with(kNop5));
  facts.poke(100, kSite, kNop5, kJmp);
  const TextStore store = facts.build();
  EXPECT_EQ(store.cell(kKernelSpace, kText + 3).range, (AddrRange{kText, kSite}));
  EXPECT_TRUE(store.cell(kKernelSpace, kText).stable());
  EXPECT_EQ(store.cell(kKernelSpace, kSite + 2).range, (AddrRange{kSite, kSite + 5}));
  EXPECT_EQ(store.cell(kKernelSpace, kSite + 5).range, (AddrRange{kSite + 5, kText + 32}));
}

TEST(Pokes, ToggledThreeTimes) {
  TextFacts facts;
  facts.layer(kText, text_with(kNop5));
  facts.poke(100, kSite, kNop5, kJmp);
  facts.poke(200, kSite, kJmp, kNop5);
  facts.poke(300, kSite, kNop5, kJmp);
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kSite, 5, 50), Texts{kNop5});
  EXPECT_EQ(at(store, kSite, 5, 150), Texts{kJmp});
  EXPECT_EQ(at(store, kSite, 5, 250), Texts{kNop5});
  EXPECT_EQ(at(store, kSite, 5, 350), Texts{kJmp});
}

TEST(Pokes, AdjacentSitesInOneBatchStaySeparate) {
  TextFacts facts;
  facts.layer(kText, "66 90 eb 10 66 90 90 90");
  facts.poke(100, kText, "66 90", "eb 20");
  facts.poke(101, kText + 2, "eb 10", "66 90");
  facts.poke(102, kText + 4, "66 90", "eb 30");
  const TextStore store = facts.build();
  EXPECT_EQ(store.cell(kKernelSpace, kText + 1).range, (AddrRange{kText, kText + 2}));
  EXPECT_EQ(store.cell(kKernelSpace, kText + 2).range, (AddrRange{kText + 2, kText + 4}));
  EXPECT_EQ(at(store, kText, 2, 99), Texts{"66 90"});
  EXPECT_EQ(at(store, kText + 2, 2, 101), Texts{"66 90"});
  EXPECT_EQ(at(store, kText + 4, 2, 101), Texts{"66 90"});
  EXPECT_EQ(at(store, kText + 4, 2, 102), Texts{"eb 30"});
}

TEST(Pokes, DuplicateOfASecondEventIsDropped) {
  TextFacts facts;
  facts.layer(kText, text_with(kNop5));
  facts.poke(100, kSite, kNop5, kJmp);
  facts.poke(100, kSite, kNop5, kJmp);
  facts.poke(9000, kSite, kJmp, kNop5);
  const TextStore store = facts.build();
  EXPECT_EQ(store.pokes().size(), 2U);
  EXPECT_EQ(at(store, kSite, 5, 50), Texts{kNop5});
  EXPECT_EQ(at(store, kSite, 5, 150), Texts{kJmp});
  EXPECT_EQ(at(store, kSite, 5, 9000), Texts{kNop5});
  EXPECT_EQ(notices_of(store, TextNotice::Kind::kDuplicatePoke).size(), 1U);
  EXPECT_TRUE(notices_of(store, TextNotice::Kind::kChainBreak).empty());
}

TEST(Pokes, DuplicateWithAClockReadingOfItsOwnIsDropped) {
  TextFacts facts;
  facts.layer(kText, text_with(kNop5));
  facts.poke(100000, kSite, kNop5, kJmp);
  facts.poke(100060, kSite, kNop5, kJmp);
  facts.poke(900000, kSite, kJmp, kNop5);
  const TextStore store = facts.build();
  EXPECT_EQ(store.pokes().size(), 2U);
  EXPECT_EQ(at(store, kSite, 5, 100030), Texts{kJmp});
  EXPECT_EQ(store.cell(kKernelSpace, kSite).versions.back().origin, kPokeBit | 1U);
  EXPECT_EQ(notices_of(store, TextNotice::Kind::kDuplicatePoke).size(), 1U);
  EXPECT_TRUE(notices_of(store, TextNotice::Kind::kChainBreak).empty());
}

TEST(Pokes, SamePokeMuchLaterIsNoDuplicate) {
  TextFacts facts;
  facts.layer(kText, text_with(kNop5));
  facts.poke(100000, kSite, kNop5, kJmp);
  facts.poke(900000, kSite, kNop5, kJmp);
  const TextStore store = facts.build();
  EXPECT_EQ(store.pokes().size(), 2U);
  EXPECT_EQ(notices_of(store, TextNotice::Kind::kChainBreak).size(), 1U);
}

TEST(Pokes, EqualTimesAreOrderedByTheBytes) {
  for (const bool swapped : {false, true}) {
    TextFacts facts;
    facts.layer(kText, text_with(kNop5));
    facts.poke_at(swapped ? 2 : 1, 100, kSite, kNop5, kJmp, 0);
    facts.poke_at(swapped ? 1 : 2, 100, kSite, kJmp, kNop5, 1);
    const TextStore store = facts.build();
    EXPECT_EQ(at(store, kSite, 5, 50), Texts{kNop5});
    EXPECT_EQ(at(store, kSite, 5, 150), Texts{kNop5});
    EXPECT_TRUE(notices_of(store, TextNotice::Kind::kChainBreak).empty());
    EXPECT_EQ(notices_of(store, TextNotice::Kind::kReordered).size(), swapped ? 1U : 0U);
    EXPECT_EQ(to_hex(store.pokes()[0].old_bytes()), kNop5);
  }
}

TEST(Pokes, EqualTimesLookAheadWhereNothingElseTells) {
  TextFacts facts;  // no layer: only the poke after them shows which was last
  facts.poke_at(1, 100, kSite, kNop5, kJmp);
  facts.poke_at(2, 100, kSite, kJmp, kNop5);
  facts.poke_at(3, 200, kSite, kJmp, kCall);
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kSite, 5, 50), Texts{kJmp});
  EXPECT_EQ(at(store, kSite, 5, 150), Texts{kJmp});
  EXPECT_EQ(at(store, kSite, 5, 250), Texts{kCall});
}

TEST(Pokes, LongTieIsChained) {
  TextFacts facts;
  facts.layer(kText, "00 90");
  for (int i = 9; i >= 0; --i) {
    facts.poke(100, kText, to_hex(std::vector{static_cast<uint8_t>(i)}),
               to_hex(std::vector{static_cast<uint8_t>(i + 1)}));
  }
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 1, 99), Texts{"00"});
  EXPECT_EQ(at(store, kText, 1, 100), Texts{"0a"});
  EXPECT_TRUE(notices_of(store, TextNotice::Kind::kChainBreak).empty());
}

TEST(Pokes, SiteAcrossTwoLayersIsOneCell) {
  TextFacts facts;  // NOP5 at the end of one ELF segment, its tail in the next
  facts.layer(kText, "90 90 90 0f 1f");
  facts.layer(kText + 5, "44 00 00 90 90");
  facts.poke(100, kText + 3, kNop5, kJmp);
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText + 3, 5, 50), Texts{kNop5});
  EXPECT_EQ(at(store, kText + 3, 5, 100), Texts{kJmp});
  EXPECT_EQ(at(store, kText + 8, 2, 100), Texts{"90 90"});
  EXPECT_TRUE(store.notices().empty());
}

TEST(Pokes, OutsideAnyTextTheSiteIsKnownAndTheRestIsNot) {
  TextFacts facts;
  facts.poke(100, kSite, kNop5, kJmp);
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kSite, 5, 50), Texts{kNop5});
  EXPECT_EQ(at(store, kSite, 5, 150), Texts{kJmp});
  EXPECT_TRUE(store.cell(kKernelSpace, kSite - 1).versions.empty());
  EXPECT_TRUE(store.cell(kKernelSpace, kSite + 5).versions.empty());
  EXPECT_EQ(notices_of(store, TextNotice::Kind::kPokeOutsideText).size(), 1U);
}

TEST(Pokes, InsideAClaimOfUnknownBytesTheSiteIsKnown) {
  TextFacts facts;
  facts.layer(kText, "", {.from = 10, .rank = kRankEpoch}, 64);
  facts.poke(100, kSite, kNop5, kJmp);
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kSite, 5, 50), Texts{kNop5});
  EXPECT_EQ(at(store, kSite, 5, 150), Texts{kJmp});
  EXPECT_EQ(at(store, kText, 1, 50), Texts{"?"});
  EXPECT_TRUE(notices_of(store, TextNotice::Kind::kPokeOutsideText).empty());
}

TEST(Pokes, PastTheTopOfTheAddressSpaceIsReported) {
  TextFacts facts;
  facts.poke(100, UINT64_MAX - 2, kNop5, kJmp);
  const TextStore store = facts.build();
  EXPECT_TRUE(store.pokes().empty());
  EXPECT_EQ(notices_of(store, TextNotice::Kind::kPokeOutsideText).size(), 1U);
}

TEST(Pokes, AtTheFirstInstantThereIsNoBefore) {
  TextFacts facts;
  facts.layer(kText, text_with(kNop5));
  facts.poke(kTimeMin, kSite, kNop5, kJmp);
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kSite, 5, kTimeMin), Texts{kJmp});
  EXPECT_EQ(store.cell(kKernelSpace, kSite).versions.size(), 1U);
}

}  // namespace
}  // namespace asof::test
