#include "textstore/lost_index.h"

#include <algorithm>

namespace asof {
namespace {

// A limit, so that sums do not overflow; a loss that does not say how many records it cost counts as this
// many.
constexpr uint64_t kMany = uint64_t{1} << 32;

}  // namespace

LostIndex::LostIndex(std::span<const LostRecords> lost) {
  for (const LostRecords& l : lost) {
    if (l.after >= l.until) continue;
    const uint64_t count = l.count == 0 ? kMany : std::min(l.count, kMany);
    by_until_.push_back({l.until, l.after, count});
    by_after_.push_back({l.after, l.until, count});
    total_ += count;
  }
  const auto by_key = [](const Bound& a, const Bound& b) { return a.key < b.key; };
  std::ranges::sort(by_until_, by_key);
  std::ranges::sort(by_after_, by_key);
  for (size_t i = by_until_.size(); i-- > 1;) {
    by_until_[i - 1].best = std::min(by_until_[i - 1].best, by_until_[i].best);
    by_until_[i - 1].count += by_until_[i].count;
  }
  for (size_t i = 1; i < by_after_.size(); ++i) {
    by_after_[i].best = std::max(by_after_[i].best, by_after_[i - 1].best);
    by_after_[i].count += by_after_[i - 1].count;
  }
}

std::optional<LostIndex::Window> LostIndex::within(Time after, Time before) const {
  const auto first = std::ranges::upper_bound(by_until_, after, {}, &Bound::key);
  if (first == by_until_.end() || first->best >= before) return std::nullopt;
  const auto last = std::ranges::lower_bound(by_after_, before, {}, &Bound::key);
  // Those that end after `after`, without those that begin at or after `before`.
  const uint64_t count = first->count - (total_ - std::prev(last)->count);
  return Window{first->best, std::prev(last)->best, count};
}

}  // namespace asof
