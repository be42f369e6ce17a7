#include "decoder/model/symbol_epochs.h"

#include <algorithm>
#include <tuple>

namespace asof {
namespace {

// A symbol of unknown size runs to the next one; more than this is no function.
constexpr uint64_t kUnknownSize = 1 << 20;

}  // namespace

SymbolEpochs::SymbolEpochs(const SymbolTable& symbols) {
  for (const Symbol* s : symbols.all()) {
    if (s->from == kTimeMin && s->until == kTimeMax) continue;
    const AddrRange range = s->range.empty() ? range_of(s->range.begin, kUnknownSize) : s->range;
    lifetimes_.push_back({s->space, range, s->from, s->until, range.end});
  }
  std::sort(lifetimes_.begin(), lifetimes_.end(), [](const Lifetime& a, const Lifetime& b) {
    return std::tie(a.space, a.range.begin) < std::tie(b.space, b.range.begin);
  });
  for (size_t i = 1; i < lifetimes_.size(); ++i) {
    if (lifetimes_[i - 1].space == lifetimes_[i].space)
      lifetimes_[i].max_end = std::max(lifetimes_[i].max_end, lifetimes_[i - 1].max_end);
  }
}

TimeBounds SymbolEpochs::around(Space space, AddrRange range, Time t) const {
  TimeBounds b;
  auto it = std::partition_point(lifetimes_.begin(), lifetimes_.end(), [&](const Lifetime& l) {
    return std::tie(l.space, l.range.begin) < std::tie(space, range.end);
  });
  while (it != lifetimes_.begin()) {
    --it;
    if (it->space != space || it->max_end <= range.begin) break;
    if (!it->range.overlaps(range)) continue;
    if (it->from > t) {
      b.hi = std::min(b.hi, it->from - 1);
    } else {
      b.lo = std::max(b.lo, it->from);
    }
    if (it->until < t) {
      b.lo = std::max(b.lo, it->until + 1);
    } else {
      b.hi = std::min(b.hi, it->until);
    }
  }
  return b;
}

}  // namespace asof
