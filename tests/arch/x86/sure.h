// Is what a decoder calls certain or proved among what really ran?
#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/arch/x86/simulation.h"

namespace asof::x86::test {

inline bool same(const Ran& r, const Executed& e) {
  return r.ip == e.ip && r.length == e.length &&
         std::equal(r.bytes.begin(), r.bytes.begin() + r.length, e.bytes.begin());
}

inline std::string show(const Ran& r) {
  return fmt::format("{:#x} {:02x} confidence {}", r.ip, fmt::join(std::span(r.bytes).first(r.length), " "),
                     static_cast<int>(r.confidence));
}

struct Score {
  uint64_t instructions = 0, sure = 0, right = 0, proved = 0, hits = 0;
};

// What is certain or proved really ran, in this order. Where time is known at sync points only, also between
// the same two of them: there a step's time is that of the one before it.
inline void expect_sure_ones_ran(const Decoded& d, const std::vector<Executed>& truth, bool by_sync_point,
                                 Score& score) {
  constexpr Time kRounding = 2;
  std::vector<Time> until(d.ran.size(), kTimeMax);
  for (size_t i = d.ran.size(); i-- > 1;)
    until[i - 1] = d.ran[i].time != d.ran[i - 1].time ? d.ran[i].time : until[i];
  size_t t = 0;
  for (size_t i = 0; i < d.ran.size(); ++i) {
    const Ran& r = d.ran[i];
    ++score.instructions;
    score.proved += r.confidence == Confidence::kProved;
    if (r.confidence > Confidence::kProved) continue;
    ++score.sure;
    const auto fits = [&](const Executed& e) {
      return same(r, e) && (!by_sync_point || e.time >= r.time - kRounding);
    };
    while (t < truth.size() && !fits(truth[t])) ++t;
    const bool in_time =
        t < truth.size() && (!by_sync_point || truth[t].time <= saturating_add(until[i], kRounding));
    ASSERT_TRUE(in_time) << "instruction " << i << " of " << d.ran.size() << " never ran: " << show(r);
    ++t;
  }
}

}  // namespace asof::x86::test
