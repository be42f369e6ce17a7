// Checks that what a decoder calls certain, proved or equivalent is among what really ran.
#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/arch/x86/simulation.h"
#include "tests/support/captures_of.h"

namespace asof::x86::test {

// Of equivalent instructions the addresses are known, but not which of several texts was there.
inline bool same(const Ran& r, const Executed& e) {
  return r.ip == e.ip &&
         (r.confidence == Confidence::kEquivalent ||
          (r.length == e.length && std::equal(r.bytes.begin(), r.bytes.begin() + r.length, e.bytes.begin())));
}

inline std::string show(const Ran& r) {
  return fmt::format("{:#x} {:02x} confidence {}", r.ip, fmt::join(std::span(r.bytes).first(r.length), " "),
                     static_cast<int>(r.confidence));
}

using asof::test::captures_of;

struct Score {
  uint64_t instructions = 0, high_confidence = 0, proved = 0, hits = 0;
};

// The end of a sequence of high-confidence instructions: at the first other instruction, or where something
// is missing.
inline size_t end_of_high_confidence(const Decoded& d, const std::vector<bool>& after_gap, size_t begin) {
  size_t end = begin + 1;
  while (end < d.ran.size() && d.ran[end].confidence <= Confidence::kEquivalent && !after_gap[end]) ++end;
  return end;
}

// What is certain, proved or equivalent really ran: each sequence of it, without a missing or an extra
// instruction, and the sequences in this order. Where time is known at sync points only, it also ran between
// the same two of them: there a step's time is that of the sync point before it.
inline void expect_high_confidence_ran(const Decoded& d, const std::vector<Executed>& truth,
                                       bool by_sync_point, Score& score) {
  constexpr Time kRounding = 2;
  std::vector<Time> until(d.ran.size(), kTimeMax);
  for (size_t i = d.ran.size(); i-- > 1;)
    until[i - 1] = d.ran[i].time != d.ran[i - 1].time ? d.ran[i].time : until[i];
  std::vector<bool> after_gap(d.ran.size() + 1);
  for (const Decoded::GapAt& g : d.gaps) after_gap.at(g.at) = true;
  size_t t = 0;
  for (size_t i = 0; i < d.ran.size();) {
    if (d.ran[i].confidence > Confidence::kEquivalent) {
      ++score.instructions;
      ++i;
      continue;
    }
    const size_t end = end_of_high_confidence(d, after_gap, i);
    size_t longest = 0;
    const auto ran_at = [&](size_t at) {
      for (size_t k = i; k < end; ++k) {
        const size_t e = at + (k - i);
        const bool right = e < truth.size() && same(d.ran[k], truth[e]) &&
                           (!by_sync_point || (truth[e].time >= d.ran[k].time - kRounding &&
                                               truth[e].time <= saturating_add(until[k], kRounding)));
        if (!right) {
          longest = std::max(longest, k - i);
          return false;
        }
      }
      return true;
    };
    while (t < truth.size() && !ran_at(t)) ++t;
    ASSERT_LT(t, truth.size()) << "instructions " << i << " to " << end << " of " << d.ran.size()
                               << " never ran consecutively, at most the first " << longest << "; then "
                               << show(d.ran[std::min(i + longest, end - 1)]);
    for (size_t k = i; k < end; ++k) score.proved += d.ran[k].confidence == Confidence::kProved;
    score.instructions += end - i;
    score.high_confidence += end - i;
    t += end - i;
    i = end;
  }
}

// The rule is worthless if little has high confidence.
inline void expect_enough(const Score& score, unsigned percent) {
  EXPECT_GT(score.high_confidence * 100, score.instructions * percent);
  EXPECT_GT(score.instructions, asof::test::captures_of(100'000));
  testing::Test::RecordProperty("instructions", std::to_string(score.instructions));
  testing::Test::RecordProperty("high_confidence", std::to_string(score.high_confidence));
  testing::Test::RecordProperty("proved", std::to_string(score.proved));
}

}  // namespace asof::x86::test
