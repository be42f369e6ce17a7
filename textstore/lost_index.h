// LostIndex: when could a change have gone unrecorded? Answers from all rings' LOST records in O(log n).
//
// A ring reports its loss late, with the next record that fits, so the missing records lie in (after, until]
// (docs/live-text.md 2). Any CPU may have made the missing poke, hence all rings count.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "textstore/facts.h"

namespace asof {

class LostIndex {
 public:
  explicit LostIndex(std::span<const LostRecords> lost);

  struct Window {
    Time after;      // nothing was lost at or before
    Time until;      // nothing was lost later
    uint64_t count;  // records lost in it, at least 2^32 where a loss does not say how many
  };
  bool empty() const { return by_until_.empty(); }
  // The first instant after `t`; all of time is after its begin.
  static Time behind(Time t) { return t == kTimeMin ? kTimeMin : saturating_add(t, 1); }
  // The smallest window that holds every loss that overlaps the open interval (after, before); none without a
  // loss.
  std::optional<Window> within(Time after, Time before) const;

 private:
  struct Bound {
    Time key;
    Time best;
    uint64_t count;  // records lost, of this one and of those from here on (up to here)
  };
  std::vector<Bound> by_until_;  // key: until; best: least `after` from here on
  std::vector<Bound> by_after_;  // key: after; best: greatest `until` up to here
  uint64_t total_ = 0;
};

}  // namespace asof
