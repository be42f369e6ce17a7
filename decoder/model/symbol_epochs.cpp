#include "decoder/model/symbol_epochs.h"

#include <algorithm>
#include <tuple>

namespace asof {
namespace {

// A symbol of unknown size runs to the next one; more than this is no function.
constexpr uint64_t kUnknownSize = 1 << 20;

}  // namespace

SymbolEpochs::SymbolEpochs(const SymbolTable& symbols) {
  add(symbols);
  finish();
}

SymbolEpochs::SymbolEpochs(const Capture& capture) {
  add(capture.symbols);
  for (const CodeMapping& m : capture.code.mappings) add(m.space, m.range, m.from, m.until);
  add_modules(capture);
  finish();
}

void SymbolEpochs::add(Space space, AddrRange range, Time from, Time until) {
  if (from == kTimeMin && until == kTimeMax) return;
  lifetimes_.push_back({space, range, from, until, range.end});
}

void SymbolEpochs::add(const SymbolTable& symbols) {
  for (const Symbol* s : symbols.all())
    add(s->space, s->range.empty() ? range_of(s->range.begin, kUnknownSize) : s->range, s->from, s->until);
}

// Where a module's file is mapped has lines while the module is there (SourceLines).
void SymbolEpochs::add_modules(const Capture& capture) {
  if (capture.modules.empty()) return;
  std::vector<AddrRange> places;
  for (const CodeMapping& m : capture.code.mappings) {
    if (m.space == kKernelSpace) places.push_back(m.range);
  }
  std::ranges::sort(places, {}, &AddrRange::begin);
  std::vector<Addr> highest;  // end, of each and all before it
  for (const AddrRange& p : places)
    highest.push_back(highest.empty() ? p.end : std::max(highest.back(), p.end));
  for (const ModuleLifetime& m : capture.modules) {
    AddrRange all = m.range;
    const auto last = std::ranges::lower_bound(places, m.range.end, {}, &AddrRange::begin) - places.begin();
    const auto first = std::ranges::upper_bound(highest, m.range.begin) - highest.begin();
    if (first < last) {
      all.begin = std::min(all.begin, places[static_cast<size_t>(first)].begin);
      all.end = std::max(all.end, highest[static_cast<size_t>(last - 1)]);
    }
    add(kKernelSpace, all, m.from, m.until);
    add(kKernelSpace, all, m.seen.lo, m.seen.hi);
  }
}

void SymbolEpochs::finish() {
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
