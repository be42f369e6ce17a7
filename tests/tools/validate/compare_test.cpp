// The comparison that `asof validate` makes: what counts as right, wrong, missing and late, on small made
// sequences and on random damage of long ones.
#include "tools/validate/compare.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <random>
#include <vector>

namespace asof {
namespace {

// Instructions of four bytes, so that address and count identify a piece.
constexpr std::array<uint8_t, 64> kLengths = [] {
  std::array<uint8_t, 64> a{};
  a.fill(4);
  return a;
}();

TruthRun truth(Addr ip, uint32_t count, Time time = 0, uint32_t flags = 0) {
  return {ip, count * 4, count, flags, time};
}
DecodedPiece decoded(Addr ip, uint32_t count, Time time = 0) {
  return {ip, count * 4, count, kLengths.data(), time, Confidence::kCertain, 0};
}

struct Case {
  explicit Case(std::vector<TruthRun> runs)
      : truth(std::move(runs)), comparer([this](TruthRun& r) {
          if (next == truth.size()) return false;
          r = truth[next++];
          return true;
        }) {}
  const CompareResult& finish() {
    comparer.finish();
    return comparer.result();
  }
  std::vector<TruthRun> truth;
  size_t next = 0;
  Comparer comparer;
};

TEST(Compare, SameInstructionsCutElsewhere) {
  Case c({truth(0x1000, 5), truth(0x2000, 3), truth(0x200c, 2)});
  c.comparer.add(decoded(0x1000, 2));
  c.comparer.add(decoded(0x1008, 3));
  c.comparer.add(decoded(0x2000, 5));
  const CompareResult& r = c.finish();
  EXPECT_EQ(r.right, 10u);
  EXPECT_EQ(r.wrong + r.missing + r.late, 0u);
  EXPECT_EQ(r.right_by_confidence[0], 10u);
}

TEST(Compare, OtherInstructionsInTheSameBytesAreWrong) {
  Case c({truth(0x1000, 5), truth(0x2000, 3)});
  static const uint8_t lengths[] = {10, 10};
  c.comparer.add({0x1000, 20, 2, lengths, 0, Confidence::kAmbiguous, 0});
  c.comparer.add(decoded(0x2000, 3));
  const CompareResult& r = c.finish();
  EXPECT_EQ(r.right, 3u);
  EXPECT_EQ(r.wrong, 2u);
  EXPECT_EQ(r.wrong_by_confidence[static_cast<size_t>(Confidence::kAmbiguous)], 2u);
  EXPECT_EQ(r.missing, 5u);
}

// The last one of a run, which nothing contiguous follows.
TEST(Compare, AShorterInstructionIsWrong) {
  Case c({truth(0x1000, 5), truth(0x2000, 40)});
  static const uint8_t lengths[] = {4, 4, 4, 4, 2};
  c.comparer.add({0x1000, 18, 5, lengths, 0, Confidence::kProved, 0});
  c.comparer.add(decoded(0x2000, 40));
  const CompareResult& r = c.finish();
  EXPECT_EQ(r.right, 44u);
  EXPECT_EQ(r.wrong, 1u);
  EXPECT_EQ(r.wrong_by_confidence[static_cast<size_t>(Confidence::kProved)], 1u);
  EXPECT_EQ(r.missing, 1u);
}

// If an instruction crosses the end of a run, nothing of that run is right, however the decoded pieces are
// cut.
TEST(Compare, AnInstructionAcrossTheEndOfARun) {
  static const uint8_t lengths[] = {4, 4, 16};
  for (const bool cut : {false, true}) {
    Case c({truth(0x1000, 5), truth(0x2000, 40)});
    if (cut) {
      c.comparer.add({0x1000, 8, 2, lengths, 0, Confidence::kCertain, 0});
      c.comparer.add({0x1008, 16, 1, lengths + 2, 0, Confidence::kCertain, 0});
    } else {
      c.comparer.add({0x1000, 24, 3, lengths, 0, Confidence::kCertain, 0});
    }
    c.comparer.add(decoded(0x2000, 40));
    const CompareResult& r = c.finish();
    EXPECT_EQ(r.right, 40u) << cut;
    EXPECT_EQ(r.wrong, 3u) << cut;
    EXPECT_EQ(r.wrong_by_confidence[0], 3u) << cut;
    EXPECT_EQ(r.missing, 5u) << cut;
  }
}

TEST(Compare, WrongBranchIsWrongAndMissing) {
  std::vector<TruthRun> runs;
  for (uint32_t i = 0; i < 40; ++i) runs.push_back(truth(0x1000 + 0x100 * i, 4, i));
  Case c(runs);
  for (uint32_t i = 0; i < 40; ++i)
    c.comparer.add(decoded(i == 7 ? 0x9000 : 0x1000 + 0x100 * i, i == 7 ? 6 : 4, i));
  const CompareResult& r = c.finish();
  EXPECT_EQ(r.right, 39u * 4);
  EXPECT_EQ(r.wrong, 6u);
  EXPECT_EQ(r.missing, 4u);
  ASSERT_EQ(r.places.size(), 2u);
  EXPECT_EQ(r.places[0].decoded_ip, 0x9000u);
  EXPECT_EQ(r.places[0].truth_ip, 0x1700u);
}

// What follows it in the same run is right.
TEST(Compare, AnInstructionPutIntoARunIsWrongAlone) {
  Case c({truth(0x1000, 5), truth(0x2000, 40)});
  c.comparer.add(decoded(0x1000, 3));
  c.comparer.add(decoded(0x9000, 1));
  c.comparer.add(decoded(0x100c, 2));
  c.comparer.add(decoded(0x2000, 40));
  const CompareResult& r = c.finish();
  EXPECT_EQ(r.right, 45u);
  EXPECT_EQ(r.wrong, 1u);
  EXPECT_EQ(r.missing, 0u);
}

TEST(Compare, SilentOmissionIsMissing) {
  std::vector<TruthRun> runs;
  for (uint32_t i = 0; i < 40; ++i) runs.push_back(truth(0x1000 + 0x100 * i, 4, i));
  Case c(runs);
  for (uint32_t i = 0; i < 40; ++i) {
    if (i < 5 || i > 8) c.comparer.add(decoded(0x1000 + 0x100 * i, 4, i));
  }
  const CompareResult& r = c.finish();
  EXPECT_EQ(r.right, 36u * 4);
  EXPECT_EQ(r.wrong, 0u);
  EXPECT_EQ(r.missing, 16u);
  EXPECT_EQ(r.missing_by_cause.at("no gap reported"), 16u);
}

TEST(Compare, GapInLoopIsPlacedByWhatFollows) {
  // A loop of 100 iterations; iterations 20 to 59 are lost. Only the exit from the loop shows which
  // iterations were decoded.
  std::vector<TruthRun> runs;
  for (uint32_t i = 0; i < 100; ++i) runs.push_back(truth(0x1000, 4));
  runs.push_back(truth(0x5000, 2));
  Case c(runs);
  for (uint32_t i = 0; i < 20; ++i) c.comparer.add(decoded(0x1000, 4));
  c.comparer.add_gap(Code::kTraceOverflow, "overflow");
  for (uint32_t i = 60; i < 100; ++i) c.comparer.add(decoded(0x1000, 4));
  c.comparer.add(decoded(0x5000, 2));
  const CompareResult& r = c.finish();
  EXPECT_EQ(r.right, 60u * 4 + 2);
  EXPECT_EQ(r.wrong, 0u);
  EXPECT_EQ(r.missing, 40u * 4);
  EXPECT_EQ(r.missing_by_cause.at("E-LOST-003"), 40u * 4);
}

// The same with more rounds than are looked at at once, and times of packets that come every 20 rounds: only the last round
// shows which ones were lost. What ran differently in the midst of it must not be taken for a difference.
TEST(Compare, GapInALongLoopIsPlacedByItsEnd) {
  constexpr uint32_t kRounds = 30'000, kLost = 45;
  constexpr Time kPacket = 2'000;
  for (const Time late : {Time{0}, kPacket}) {
    std::vector<TruthRun> runs;
    for (uint32_t i = 0; i < kRounds; ++i)
      runs.push_back(truth(i == 25'000 ? 0x2000 : 0x1000, 4, Time{100} * i));
    runs.push_back(truth(0x5000, 2, Time{100} * kRounds));
    Case c(runs);
    for (uint32_t i = 0; i < runs.size(); ++i) {
      if (i == kLost) c.comparer.add_gap(Code::kTraceOverflow, "overflow");
      if (i < kLost || i >= 2 * kLost)
        c.comparer.add(decoded(runs[i].ip, runs[i].count, runs[i].time / kPacket * kPacket + late));
    }
    const CompareResult& r = c.finish();
    EXPECT_EQ(r.right, (kRounds - kLost) * 4 + 2) << late;
    EXPECT_EQ(r.wrong, 0u) << late;
    EXPECT_EQ(r.missing, kLost * 4) << late;
    EXPECT_EQ(r.missing_by_cause.at("E-LOST-003"), kLost * 4) << late;
  }
}

TEST(Compare, GapResumesInTheMiddleOfARun) {
  Case c({truth(0x1000, 8), truth(0x2000, 8), truth(0x3000, 8)});
  c.comparer.add(decoded(0x1000, 3));
  c.comparer.add_gap(Code::kTraceContradictsText, "");
  c.comparer.add(decoded(0x2010, 4));
  c.comparer.add(decoded(0x3000, 8));
  const CompareResult& r = c.finish();
  EXPECT_EQ(r.right, 15u);
  EXPECT_EQ(r.wrong, 0u);
  EXPECT_EQ(r.missing, 5u + 4u);
}

TEST(Compare, GapThatLosesNothing) {
  Case c({truth(0x1000, 8), truth(0x2000, 8)});
  c.comparer.add(decoded(0x1000, 3));
  c.comparer.add_gap(Code::kBadPacket, "");
  c.comparer.add(decoded(0x100c, 5));
  c.comparer.add(decoded(0x2000, 8));
  const CompareResult& r = c.finish();
  EXPECT_EQ(r.right, 16u);
  EXPECT_EQ(r.wrong + r.missing, 0u);
}

TEST(Compare, LateTextExcusesWhatFollowsItInItsGapOnly) {
  Case c({truth(0x1000, 4), truth(0x2000, 5), truth(0x3000, 6, 0, TruthRun::kLateText), truth(0x4000, 7),
          truth(0x5000, 3)});
  c.comparer.add(decoded(0x1000, 4));
  c.comparer.add_gap(Code::kNoBytes, "");
  c.comparer.add(decoded(0x5000, 3));
  const CompareResult& r = c.finish();
  EXPECT_EQ(r.right, 7u);
  EXPECT_EQ(r.missing, 5u);
  EXPECT_EQ(r.late, 6u + 7u);
}

TEST(Compare, TimeTellsRoundsApart) {
  // Two identical passes 1 ms apart; the first is lost. Without times the earlier position would be taken.
  std::vector<TruthRun> runs;
  for (uint32_t pass = 0; pass < 2; ++pass) {
    for (uint32_t i = 0; i < 10; ++i) runs.push_back(truth(0x1000 + 0x100 * i, 2, pass * 1'000'000 + i * 10));
  }
  Case c(runs);
  c.comparer.add_gap(Code::kRecordsLost, "");
  for (uint32_t i = 0; i < 10; ++i) c.comparer.add(decoded(0x1000 + 0x100 * i, 2, 1'000'000 + i * 10));
  const CompareResult& r = c.finish();
  EXPECT_EQ(r.right, 20u);
  EXPECT_EQ(r.missing, 20u);
  EXPECT_EQ(r.missing_by_cause.count("end of trace"), 0u);
}

// A program calls code that a JIT has written anew, and is shown with the old code. What it does between two such calls is
// right however short that is.
TEST(Compare, ShortStretchBetweenCodeWithoutBytesIsRight) {
  std::vector<TruthRun> runs;
  for (int i = 0; i < 20; ++i) {
    runs.push_back(truth(0x1000, 7));
    runs.push_back(truth(0x8000, 6, 0, TruthRun::kLateText));
    runs.push_back(truth(0x8014, 4, 0, TruthRun::kLateText));
  }
  runs.push_back(truth(0x1000, 40));
  Case c(runs);
  for (int i = 0; i < 20; ++i) {
    c.comparer.add(decoded(0x1000, 7));
    for (int k = 0; k <= i % 3; ++k) {
      DecodedPiece old = decoded(0x8000, 9);
      old.confidence = Confidence::kAmbiguous;
      c.comparer.add(old);
    }
  }
  c.comparer.add(decoded(0x1000, 40));
  const CompareResult& r = c.finish();
  EXPECT_EQ(r.right_by_confidence[static_cast<size_t>(Confidence::kCertain)], 20u * 7 + 40);
  EXPECT_EQ(r.wrong_by_confidence[static_cast<size_t>(Confidence::kCertain)], 0u);
  EXPECT_EQ(r.missing, 0u);
}

// Generated code, say, that nobody has bytes of, in a loop. What follows it is found however long that took, also where it
// has no time, and where a gap before it was searched first.
TEST(Compare, WhatFollowsALongLoopWithoutBytes) {
  for (const size_t rounds : {size_t{100'000}, size_t{5'000'000}}) {
    const auto end = static_cast<Time>(rounds);
    for (const Time time : {end, kTimeMin}) {
      std::vector<TruthRun> runs{truth(0x1000, 4), truth(0x3000, 5)};
      for (Time t = 1; t < end; ++t) runs.push_back(truth(0x8000, 3, t, TruthRun::kLateText));
      runs.push_back(truth(0x2000, 40, end));
      Case c(std::move(runs));
      c.comparer.add(decoded(0x1000, 4));
      c.comparer.add_gap("E-LOST-103", "");
      c.comparer.add(decoded(0x3000, 5));
      c.comparer.add_gap("E-TEXT-001", "no bytes");
      c.comparer.add(decoded(0x2000, 40, time));
      const CompareResult& r = c.finish();
      EXPECT_EQ(r.right, 49U);
      EXPECT_EQ(r.wrong, 0U);
      EXPECT_EQ(r.missing, 0U);
      EXPECT_EQ(r.late, 3 * (rounds - 1));
    }
  }
}

// Other instructions than those that ran, in the same bytes: those that ran are late where their bytes are nowhere.
TEST(Compare, OldCodeOfTheSameSizeLeavesLateText) {
  Case c({truth(0x1000, 7), truth(0x8000, 6, 0, TruthRun::kLateText), truth(0x1000, 40)});
  static const uint8_t lengths[] = {8, 8, 8};
  c.comparer.add(decoded(0x1000, 7));
  c.comparer.add({0x8000, 24, 3, lengths, 0, Confidence::kAmbiguous, 0});
  c.comparer.add(decoded(0x1000, 40));
  const CompareResult& r = c.finish();
  EXPECT_EQ(r.right, 47u);
  EXPECT_EQ(r.wrong, 3u);
  EXPECT_EQ(r.late, 6u);
  EXPECT_EQ(r.missing, 0u);
}

// Where the bytes are known a short stretch proves nothing: it may be of another time.
TEST(Compare, ShortStretchBetweenKnownCodeIsNotRight) {
  Case c({truth(0x1000, 7), truth(0x8000, 6), truth(0x2000, 7), truth(0x8000, 6), truth(0x1000, 40)});
  c.comparer.add(decoded(0x1000, 7));
  c.comparer.add(decoded(0x9000, 6));
  c.comparer.add(decoded(0x2000, 7));
  c.comparer.add(decoded(0x9000, 6));
  c.comparer.add(decoded(0x1000, 40));
  const CompareResult& r = c.finish();
  EXPECT_EQ(r.right, 47u);
  EXPECT_EQ(r.wrong, 19u);
}

// A short stretch between two gaps has the time of a later packet, 100 us late, in the next iteration of the
// loop: its order decides where it belongs, and nothing after it is wrong.
// A gap of many runs before the last piece, after which no time comes that would end its window.
TEST(Compare, TheLastStretchIsFoundFarBehindALongGap) {
  constexpr Time kLate = 1'000'000'000;
  std::vector<TruthRun> runs{truth(0x1000, 5, 10), truth(0x2000, 3, 11)};
  for (int i = 0; i < 100'000; ++i) runs.push_back(truth(0x9000, 1, 20 + i));
  runs.push_back(truth(0x1000, 5, kLate));
  runs.push_back(truth(0x5000, 40, kLate));
  Case c(runs);
  c.comparer.add_gap(Code::kTraceOverflow, "overflow");
  c.comparer.add(decoded(0x1000, 5, kLate));
  c.comparer.add(decoded(0x5000, 40, kLate));
  const CompareResult& r = c.finish();
  EXPECT_EQ(r.right, 45U);
  EXPECT_EQ(r.wrong, 0U);
  EXPECT_EQ(r.missing, 100'008U);
}

TEST(Compare, LateTimeOfAShortStretchMakesNothingWrong) {
  std::vector<TruthRun> runs;
  for (uint32_t round = 0; round < 4; ++round) {
    for (uint32_t i = 0; i < 10; ++i)
      runs.push_back(truth(0x1000 + 0x100 * i, 2, round * 100'000 + i * 1'000));
  }
  runs.push_back(truth(0x9000, 2, 500'000));
  Case c(runs);
  c.comparer.add(decoded(0x1000, 2, 0));
  c.comparer.add_gap(Code::kReturnWithoutItsCall, "");
  c.comparer.add(decoded(0x1500, 2, 104'000));  // ran at 5'000
  c.comparer.add_gap(Code::kReturnWithoutItsCall, "");
  for (uint32_t i = 7; i < 10; ++i) c.comparer.add(decoded(0x1000 + 0x100 * i, 2, 104'000));  // at 7'000
  for (uint32_t i = 10; i < runs.size(); ++i) c.comparer.add(decoded(runs[i].ip, 2, runs[i].time + 4'000));
  const CompareResult& r = c.finish();
  EXPECT_EQ(r.wrong, 0u);
  EXPECT_EQ(r.missing, 5u * 2);
  EXPECT_EQ(r.right, (runs.size() - 5) * 2);
}

// Between two gaps is only a stretch that never ran: it takes nothing from the stretches after it.
TEST(Compare, AWrongStretchBetweenGapsIsLeftOut) {
  std::vector<TruthRun> runs;
  for (uint32_t i = 0; i < 60; ++i) runs.push_back(truth(0x1000 + 0x100 * i, 4));
  Case c(runs);
  for (uint32_t i = 0; i < 10; ++i) c.comparer.add(decoded(0x1000 + 0x100 * i, 4));
  c.comparer.add_gap(Code::kTraceContradictsText, "");
  c.comparer.add(decoded(0x1000 + 0x100 * 50, 4));  // far ahead, where what follows does not match any more
  c.comparer.add_gap(Code::kTraceContradictsText, "");
  for (uint32_t i = 12; i < 60; ++i) c.comparer.add(decoded(0x1000 + 0x100 * i, 4));
  const CompareResult& r = c.finish();
  EXPECT_EQ(r.wrong, 4u);
  EXPECT_EQ(r.missing, 2u * 4);
}

// A part of a run with more instructions than the run has: not all of them can have run.
TEST(Compare, MoreInstructionsThanTheRunHasAreWrong) {
  Case c({truth(0x1000, 4), {0x2000, 12, 2, 0, 0}, truth(0x3000, 4)});
  static const uint8_t lengths[] = {2, 5, 1};
  c.comparer.add(decoded(0x1000, 4));
  c.comparer.add({0x2000, 8, 3, lengths, 0, Confidence::kCertain, 0});
  c.comparer.add_gap(Code::kTraceContradictsText, "");
  c.comparer.add(decoded(0x3000, 4));
  const CompareResult& r = c.finish();
  EXPECT_EQ(r.right, 10u);
  EXPECT_EQ(r.wrong, 1u);
  EXPECT_EQ(r.missing, 0u);
}

TEST(Compare, EverythingAfterTheEndOfTruthIsWrong) {
  Case c({truth(0x1000, 4)});
  c.comparer.add(decoded(0x1000, 4));
  c.comparer.add(decoded(0x2000, 4));
  const CompareResult& r = c.finish();
  EXPECT_EQ(r.right, 4u);
  EXPECT_EQ(r.wrong, 4u);
}

TEST(Compare, NothingDecoded) {
  Case c({truth(0x1000, 4), truth(0x2000, 4)});
  const CompareResult& r = c.finish();
  EXPECT_EQ(r.missing, 8u);
  EXPECT_EQ(r.missing_by_cause.at("end of trace"), 8u);
}

// Damage of known size in long random walks: the figures must be exact, wherever and however often it falls.
TEST(Compare, RandomDamageIsCountedExactly) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    std::mt19937 engine(seed);
    const auto rng = [&] { return static_cast<uint32_t>(engine()); };
    std::vector<TruthRun> runs;
    Time time = 0;
    for (size_t i = 0; i < 30000; ++i) {
      time += rng() % 50;
      runs.push_back(truth(0x1000 + 0x100 * (rng() % 5000), 1 + rng() % 20, time));
    }
    Case c(runs);
    uint64_t right = 0, wrong = 0, missing = 0;
    for (size_t i = 0; i < runs.size();) {
      const uint32_t what = rng() % 1000;
      const size_t n = std::min<size_t>(1 + rng() % 50, runs.size() - i);
      if (what < 5) {  // a gap
        c.comparer.add_gap(Code::kRecordsLost, "gap");
        for (size_t k = 0; k < n; ++k) missing += runs[i++].count;
      } else if (what < 8 &&
                 i + 200 < runs.size()) {  // a detour that never was, then a stretch without damage
        c.comparer.add(decoded(0x800000 + 0x100 * (rng() % 100), 7, runs[i].time));
        wrong += 7;
        missing += runs[i++].count;
        for (size_t k = 0; k < 100; ++k, ++i) {
          c.comparer.add(decoded(runs[i].ip, runs[i].count, runs[i].time));
          right += runs[i].count;
        }
      } else {
        c.comparer.add(decoded(runs[i].ip, runs[i].count, runs[i].time));
        right += runs[i++].count;
      }
    }
    const CompareResult& r = c.finish();
    EXPECT_EQ(r.right, right) << "seed " << seed;
    EXPECT_EQ(r.wrong, wrong) << "seed " << seed;
    EXPECT_EQ(r.missing, missing) << "seed " << seed;
  }
}

}  // namespace
}  // namespace asof
