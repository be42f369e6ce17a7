// Changes that no record shows: what is possible then, and how LOST records narrow it
// (docs/live-text.md 8.4).
#include <gtest/gtest.h>

#include "tests/textstore/text_facts.h"

namespace asof::test {
namespace {

using Kind = TextNotice::Kind;

TEST(BrokenChain, BothAreCandidatesBetweenTheTwoPokes) {
  TextFacts facts;
  facts.layer(kText, "0a 90");
  facts.poke(10, kText, "0a", "0b");
  facts.poke(600, kText, "0c", "0d");
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 1, 5), Texts{"0a"});
  EXPECT_EQ(at(store, kText, 1, 10), Texts{"0b"});
  EXPECT_EQ(at(store, kText, 1, 11), (Texts{"0b", "0c"}));
  EXPECT_EQ(at(store, kText, 1, 599), (Texts{"0b", "0c"}));
  EXPECT_EQ(at(store, kText, 1, 600), Texts{"0d"});
  const auto notices = notices_of(store, Kind::kChainBreak);
  ASSERT_EQ(notices.size(), 1U);
  EXPECT_EQ(notices[0].addr, kText);
  EXPECT_EQ(notices[0].from, 10);
  EXPECT_EQ(notices[0].until, 600);
  EXPECT_NE(notices[0].text.find("0b"), std::string::npos);
  EXPECT_NE(notices[0].text.find("0c"), std::string::npos);
}

// What a copy showed breaks the chain as a record does, and is none.
TEST(BrokenChain, WhatACopyShowedIsNoRecord) {
  TextFacts facts;
  const OriginRef copy =
      facts.builder.add_origin({.kind = OriginKind::kKcoreEnd, .name = "kcore.end", .build_id = {}});
  facts.layer(kText, "0a 90");
  facts.poke(10, kText, "0a", "0b");
  facts.observed(600, kText, "0c", copy);
  facts.poke(20, kText + 1, "90", "91");
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 1, 10), Texts{"0b"});
  EXPECT_EQ(at(store, kText, 1, 11), (Texts{"0b", "0c"}));
  EXPECT_EQ(at(store, kText, 1, 600), Texts{"0c"});
  EXPECT_EQ(at(store, kText + 1, 1, 30), Texts{"91"});
  ASSERT_EQ(store.pokes().size(), 2U);
  EXPECT_EQ(store.pokes()[0].time, 10);
  EXPECT_EQ(store.pokes()[1].time, 20);
  for (const Version& v : store.cell(kKernelSpace, kText).versions) {
    if (v.bytes == nullptr) continue;
    EXPECT_EQ(v.origin == copy, v.bytes[0] == 0x0c) << v.from;
    if (v.bytes[0] == 0x0b) {
      EXPECT_EQ(v.origin, kPokeBit | 0U);
    }
  }
  for (const Version& v : store.cell(kKernelSpace, kText + 1).versions) {
    if (is_poke(v.origin)) {
      EXPECT_EQ(poke_index(v.origin), 1U);
    }
  }
  EXPECT_TRUE(notices_of(store, Kind::kChainBreak).empty()) << "who compared the copy reports it";
}

TEST(BrokenChain, LostRecordsNarrow) {
  TextFacts facts;
  facts.poke(10, kText, "0a", "0b");
  facts.lost(20, 500);
  facts.poke(600, kText, "0c", "0d");
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 1, 20), Texts{"0b"});
  EXPECT_EQ(at(store, kText, 1, 21), (Texts{"0b", "0c"}));
  EXPECT_EQ(at(store, kText, 1, 500), (Texts{"0b", "0c"}));
  EXPECT_EQ(at(store, kText, 1, 501), Texts{"0c"});
  EXPECT_EQ(at(store, kText, 1, 599), Texts{"0c"});
}

// The missing change may be one of a CPU without a ring, for which no LOST record is written.
TEST(BrokenChain, LostRecordsDoNotNarrowWhereARingMayBeMissing) {
  TextFacts facts;
  facts.all_rings = false;
  facts.poke(10, kText, "0a", "0b");
  facts.lost(20, 500);
  facts.poke(600, kText, "0c", "0d");
  const TextStore store = facts.build();
  for (const Time t : {10, 15, 30, 599})
    EXPECT_EQ(at(store, kText, 1, t), (Texts{"0a", "0b", "0c", "0d", "?"})) << t;
  EXPECT_EQ(at(store, kText, 1, 600), Texts{"0d"});
}

TEST(BrokenChain, LossesOfAllRingsCountAndOthersElsewhereDoNot) {
  TextFacts facts;
  facts.poke(10, kText, "0a", "0b", 1);
  facts.lost(2, 9, 0);
  facts.lost(20, 50, 0);
  facts.lost(100, 200, 1);
  facts.lost(700, 800, 1);
  facts.poke(600, kText, "0c", "0d", 1);
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 1, 15), Texts{"0b"});
  // Two records are missing: there may have been something between 0b and 0c.
  for (const Time t : {30, 70, 200}) {
    EXPECT_EQ(at(store, kText, 1, t), (Texts{"0a", "0b", "0c", "0d", "?"})) << t;
  }
  EXPECT_EQ(at(store, kText, 1, 201), Texts{"0c"});
}

TEST(BrokenChain, LossSharingItsTimeWithThePokeEndsThere) {
  TextFacts facts;
  facts.poke(10, kText, "0a", "0b");
  facts.lost(20, 600);
  facts.poke(600, kText, "0c", "0d");
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 1, 599), (Texts{"0b", "0c"}));
  EXPECT_EQ(at(store, kText, 1, 600), Texts{"0d"});
}

TEST(BrokenChain, BytesOfOneSiteThatBrokeApartCombine) {
  TextFacts facts;  // byte 0 breaks between 10 and 100, byte 1 between 20 and 90
  facts.layer(kText, "00 01 90");
  facts.poke(1, kText, "00 01", "00 01");
  facts.poke(10, kText, "00", "a0");
  facts.poke(20, kText + 1, "01", "a1");
  facts.poke(90, kText + 1, "b1", "c1");
  facts.poke(100, kText, "b0", "c0");
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 2, 15), (Texts{"a0 01", "b0 01"}));
  EXPECT_EQ(at(store, kText, 2, 50), (Texts{"a0 a1", "a0 b1", "b0 a1", "b0 b1"}));
  EXPECT_EQ(at(store, kText, 2, 95), (Texts{"a0 c1", "b0 c1"}));
  EXPECT_EQ(at(store, kText, 2, 100), Texts{"c0 c1"});
}

TEST(BrokenChain, ManyPokesWithinABreakLeaveAnUnknownCandidate) {
  TextFacts facts;  // the break of byte 0 spans 80 changes of byte 1
  facts.layer(kText, "00 00 90");
  facts.poke(1, kText, "00 00", "a0 00");
  for (int i = 0; i < 80; ++i) {
    facts.poke(10 + i * 10000, kText + 1, to_hex(std::vector{static_cast<uint8_t>(i)}),
               to_hex(std::vector{static_cast<uint8_t>(i + 1)}));
  }
  facts.poke(1000000, kText, "b0 50", "c0 50");
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 2, 5), (Texts{"?", "a0 00"}));
  EXPECT_EQ(at(store, kText, 2, 100015), (Texts{"?", "a0 0b"}));
  EXPECT_EQ(at(store, kText, 2, 1000000), Texts{"c0 50"});
}

// A module that no copy has, unloaded and loaded at the same address, which has no record: its site is as the first
// record found it, and is changed again. No change is missing then; in known text one is.
TEST(BrokenChain, CodeOfNoKnownTextMayBeLoadedAnew) {
  for (const bool known : {false, true}) {
    TextFacts facts;
    if (known) facts.layer(kText, kCall);
    facts.poke(10, kText, kCall, kNop5);
    facts.poke(100'000, kText, kCall, kNop5);
    facts.poke(200'000, kText, kJmp, kNop5);
    const TextStore store = facts.build();
    EXPECT_EQ(at(store, kText, 5, 50'000), (Texts{kNop5, kCall}));
    const auto breaks = notices_of(store, Kind::kChainBreak);
    ASSERT_EQ(breaks.size(), known ? 2U : 1U);
    EXPECT_EQ(breaks.back().until, 200'000) << "what nobody left there";
    const auto outside = notices_of(store, Kind::kPokeOutsideText);
    EXPECT_EQ(std::ranges::count_if(outside,
                                    [](const TextNotice& n) { return n.from == 10 && n.until == 100'000; }),
              known ? 0 : 1);
  }
}

TEST(BrokenChain, OneBreakAfterAnother) {
  TextFacts facts;
  for (int i = 0; i < 50; ++i) {
    facts.poke(i * 10000, kText, to_hex(std::vector{static_cast<uint8_t>(3 * i)}),
               to_hex(std::vector{static_cast<uint8_t>(3 * i + 1)}));
  }
  const TextStore store = facts.build();
  for (int i = 0; i + 1 < 50; ++i) {
    const std::string left = to_hex(std::vector{static_cast<uint8_t>(3 * i + 1)});
    const std::string found = to_hex(std::vector{static_cast<uint8_t>(3 * i + 3)});
    EXPECT_EQ(at(store, kText, 1, i * 10000 + 5000), (Texts{left, found}));
  }
  EXPECT_EQ(notices_of(store, Kind::kChainBreak).size(), 49U);
}

TEST(BrokenChain, NoticesOfOneKindAreLimitedAndTheRestCounted) {
  TextFacts facts;
  for (uint32_t i = 0; i < 3000; ++i) {
    facts.poke(10, kText + 16 * i, "01", "02");
    facts.poke(1000000, kText + 16 * i, "03", "04");
  }
  const TextStore store = facts.build();
  const auto notices = notices_of(store, Kind::kChainBreak);
  ASSERT_EQ(notices.size(), 1001U);
  EXPECT_EQ(notices.back().text.substr(0, 9), "2000 more");
}

}  // namespace
}  // namespace asof::test
