// Checks that what a decoder calls certain, proved or equivalent is among what really ran.
#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/arch/arm64/random_simulation.h"

namespace asof::test {

inline std::string show(const EtmRan& r) {
  return fmt::format("{:#x} {:08x} confidence {}", r.ip, r.word, static_cast<int>(r.confidence));
}

// Of equivalent instructions the addresses are known, but not which of several words was there.
inline bool same(const EtmRan& r, const A64Executed& e) {
  return r.ip == e.ip && (r.word == e.word || r.confidence == Confidence::kEquivalent);
}

struct Score {
  uint64_t captures = 0, instructions = 0, high_confidence = 0, proved = 0, ran = 0, gaps = 0;
};

inline void expect_equal(const std::vector<EtmRan>& got, const std::vector<A64Executed>& want) {
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i)
    ASSERT_TRUE(same(got[i], want[i]))
        << "instruction " << i << " of " << want.size() << ": " << show(got[i]) << ", really "
        << fmt::format("{:#x} {:08x}", want[i].ip, want[i].word);
  ASSERT_EQ(got.size(), want.size());
}

// What is certain, proved or equivalent really ran in this segment, in this order, not before its time, and
// without a hole: instructions that are adjacent without a gap ran directly one after the other.
inline void expect_high_confidence_ran(const std::vector<EtmRan>& got, const std::vector<A64Executed>& want,
                                       bool has_time, Score& score) {
  const auto high_confidence = [&](size_t i) { return got[i].confidence <= Confidence::kEquivalent; };
  size_t t = 0;
  for (size_t i = 0; i < got.size();) {
    size_t end = i;
    while (end < got.size() && high_confidence(end) && (end == i || !got[end].after_gap)) ++end;
    if (end == i) {
      ++i;
      continue;
    }
    size_t longest = 0;
    const auto fits = [&](size_t from) {
      for (size_t k = i; k < end; ++k) {
        const size_t at = from + (k - i);
        if (at >= want.size() || !same(got[k], want[at]) ||
            (has_time && static_cast<Time>(want[at].time) < got[k].time))
          return false;
        longest = std::max(longest, k - i + 1);
      }
      return true;
    };
    while (t < want.size() && !fits(t)) ++t;
    ASSERT_LT(t, want.size()) << "instructions " << i << " to " << end << " of " << got.size() << " ("
                              << want.size()
                              << " ran) never ran one after the other; the first that does not fit: "
                              << show(got[std::min(i + longest, end - 1)]);
    t += end - i;
    score.high_confidence += end - i;
    i = end;
  }
  for (const EtmRan& r : got) score.proved += r.confidence == Confidence::kProved;
  score.instructions += got.size();
  score.ran += want.size();
}

}  // namespace asof::test
