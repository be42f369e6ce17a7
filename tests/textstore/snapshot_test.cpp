// Copies of memory against the chain of pokes (docs/live-text.md 6 and rows L05 to L08, B07 of 8).
#include <gtest/gtest.h>

#include "tests/textstore/text_facts.h"

namespace asof::test {
namespace {

using Kind = TextNotice::Kind;

TEST(Snapshot, TransientBreakpointInTheCopyIsHealed) {
  for (const std::string tail : {"1f 44 00 00", "01 02 03 04"}) {  // of the old or the new instruction
    TextFacts facts;
    facts.layer(kText, "cc " + tail + " 90");
    facts.poke(100, kText, kNop5, kJmp);
    const TextStore store = facts.build();
    EXPECT_EQ(at(store, kText, 5, 50), Texts{kNop5});
    EXPECT_EQ(at(store, kText, 5, 100), Texts{kJmp});
    EXPECT_EQ(notices_of(store, Kind::kTransientHealed).size(), 1U);
    EXPECT_TRUE(notices_of(store, Kind::kBaselineMismatch).empty());
  }
}

TEST(Snapshot, BreakpointWithoutAnyPokeStays) {
  TextFacts facts;
  facts.layer(kText, "cc 55 48 89 e5");
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 5, 50), Texts{"cc 55 48 89 e5"});
  EXPECT_TRUE(store.notices().empty());
}

TEST(Snapshot, KprobeArmedBeforeTheRecordingIsNoTransient) {
  TextFacts facts;
  facts.layer(kText, "cc 55 48 89 e5");
  facts.poke(100, kText, "cc", "41");
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 1, 50), Texts{"cc"});
  EXPECT_EQ(at(store, kText, 1, 150), Texts{"41"});
  EXPECT_TRUE(store.notices().empty());
}

TEST(Snapshot, CopiedAfterAPokeItIsNotAppliedTwice) {
  TextFacts facts;  // events are open before kcore is copied
  facts.layer(kText, kJmp + " 90");
  facts.poke(100, kText, kNop5, kJmp);
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 5, 50), Texts{kNop5});
  EXPECT_EQ(at(store, kText, 5, 150), Texts{kJmp});
  EXPECT_TRUE(store.notices().empty());
}

TEST(Snapshot, DisagreementIsReportedAndThePokeWins) {
  TextFacts facts;
  facts.layer(kText, kCall + " 90");
  facts.poke(100, kText, kNop5, kJmp);
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 5, 50), Texts{kNop5});
  const auto notices = notices_of(store, Kind::kBaselineMismatch);
  ASSERT_EQ(notices.size(), 1U);
  EXPECT_EQ(notices[0].addr, kText);
}

// What the copy shows was changed without a record, at any time up to the first poke.
TEST(Snapshot, DisagreementOfADatedCopyIsAnExtraCandidate) {
  TextFacts facts;
  facts.layer(kText, kCall + " 90", {.observed = 30});
  facts.poke(100, kText, kNop5, kJmp);
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 5, 30), (Texts{kNop5, kCall}));
  EXPECT_EQ(at(store, kText, 5, 99), (Texts{kNop5, kCall}));
  EXPECT_EQ(at(store, kText, 5, 100), Texts{kJmp});
  EXPECT_EQ(notices_of(store, Kind::kBaselineMismatch).size(), 1U);
}

TEST(Snapshot, LossAfterADatedCopyEndsTheExtraCandidate) {
  TextFacts facts;
  facts.layer(kText, kCall + " 90", {.observed = 30});
  facts.lost(40, 60);
  facts.poke(100, kText, kNop5, kJmp);
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 5, 60), (Texts{kNop5, kCall}));
  EXPECT_EQ(at(store, kText, 5, 61), Texts{kNop5});
}

TEST(Snapshot, EndSnapshotAfterALossGivesASecondCandidate) {
  TextFacts facts;
  facts.layer(kText, "0a 90", {.until = 900});
  facts.layer(kText, "0e 90", {.from = 0, .observed = 1000});
  facts.poke(10, kText, "0a", "0b");
  facts.lost(20, 500);
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 1, 5), Texts{"0a"});
  EXPECT_EQ(at(store, kText, 1, 20), Texts{"0b"});
  // No record shows the bytes at the end of the first copy's lifetime.
  EXPECT_EQ(at(store, kText, 1, 21), (Texts{"0a", "0b", "0e", "?"}));
  EXPECT_EQ(at(store, kText, 1, 1000), (Texts{"0b", "0e"}));
}

// A state that no record leaves or finds: unrecorded changes there and back between two pokes.
TEST(Snapshot, EndSnapshotOfAStateThatNeverWasIsACandidateUpToTheNextPoke) {
  TextFacts facts;
  facts.layer(kText, "0a 90", {.until = 900});
  facts.layer(kText, "0e 90", {.from = 0, .observed = 700});
  facts.poke(10, kText, "0a", "0b");
  facts.poke(800, kText, "0b", "0c");
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 1, 5), Texts{"0a"});
  EXPECT_EQ(at(store, kText, 1, 10), (Texts{"0b", "0e"}));
  EXPECT_EQ(at(store, kText, 1, 799), (Texts{"0b", "0e"}));
  EXPECT_EQ(at(store, kText, 1, 800), Texts{"0c"});
}

TEST(Snapshot, EndSnapshotOfAnOlderStateWithoutALossIsOnlyLate) {
  TextFacts facts;  // copying takes time; the copy is dated at its end
  facts.layer(kText, "0a 90", {.observed = 100});
  facts.poke(95, kText, "0a", "0b");
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText, 1, 100), Texts{"0b"});
  EXPECT_TRUE(store.notices().empty());
}

TEST(Snapshot, ImageFetchedBetweenPokesIsRolledBackAndForward) {
  TextFacts facts;
  facts.layer(kText, "55 " + kJmp + " c3", {.from = 5, .observed = 50, .rank = kRankEpoch});
  facts.poke(40, kText + 1, kNop5, kJmp);
  facts.poke(60, kText + 1, kJmp, kCall);
  const TextStore store = facts.build();
  EXPECT_EQ(at(store, kText + 1, 5, 30), Texts{kNop5});
  EXPECT_EQ(at(store, kText + 1, 5, 45), Texts{kJmp});
  EXPECT_EQ(at(store, kText + 1, 5, 70), Texts{kCall});
  EXPECT_EQ(at(store, kText, 1, 30), Texts{"55"});
  EXPECT_TRUE(store.notices().empty());
}

TEST(Snapshot, StartAndEndSnapshotGiveTheSameChain) {
  const auto answers = [](Time observed, const std::string& bytes) {
    TextFacts facts;
    facts.layer(kText, bytes, {.observed = observed});
    facts.poke(100, kText, kNop5, kJmp);
    facts.poke(200, kText, kJmp, kCall);
    const TextStore store = facts.build();
    EXPECT_TRUE(store.notices().empty());
    return std::vector{at(store, kText, 5, 50), at(store, kText, 5, 150), at(store, kText, 5, 250)};
  };
  EXPECT_EQ(answers(10, kNop5), answers(300, kCall));
}

TEST(Snapshot, TwoSnapshotsDifferInOneRangeOnly) {
  std::vector<uint8_t> start(4096), end;
  for (size_t i = 0; i < start.size(); ++i) start[i] = static_cast<uint8_t>(i * 7);
  end = start;
  end[1000] ^= 1;
  end[1010] ^= 1;  // closer than the length of an instruction: one run
  TextFacts facts;
  facts.layer_bytes(kText, start, {.until = 900});
  facts.layer_bytes(kText, end, {.from = 100, .observed = 1000});
  const TextStore store = facts.build();
  EXPECT_EQ(store.cell(kKernelSpace, kText + 1005).range, (AddrRange{kText + 1000, kText + 1011}));
  EXPECT_EQ(store.cell(kKernelSpace, kText + 1000).versions.size(), 2U);
  EXPECT_TRUE(store.cell(kKernelSpace, kText).stable());
  EXPECT_TRUE(store.cell(kKernelSpace, kText + 1011).stable());
  EXPECT_EQ(at(store, kText + 1000, 1, 50).size(), 1U);
  EXPECT_EQ(at(store, kText + 1000, 1, 500).size(), 2U);
  EXPECT_EQ(at(store, kText + 1000, 1, 950), Texts{to_hex(std::span(end).subspan(1000, 1))});
}

}  // namespace
}  // namespace asof::test
