#include "textstore/patch_sites.h"

#include <algorithm>

#include "textstore/poke_sites.h"

namespace asof {
namespace {

// Ranges by begin, and how far those up to each one reach.
class Ranges {
 public:
  void add(AddrRange range, uint32_t index) { ranges_.push_back({range, index, 0}); }
  void sort() {
    std::ranges::sort(ranges_, [](const Entry& a, const Entry& b) {
      return a.range.begin != b.range.begin ? a.range.begin < b.range.begin : a.index < b.index;
    });
    Addr reach = 0;
    for (Entry& e : ranges_) e.reach = reach = std::max(reach, e.range.end);
  }
  // Calls f(index) for each range that overlaps `range`, last first. False: more are near than the budget
  // allows to look at.
  template <class F>
  bool overlapping(AddrRange range, Budget& budget, F&& f) const {
    auto after =
        std::ranges::lower_bound(ranges_, range.end, {}, [](const Entry& e) { return e.range.begin; });
    while (after != ranges_.begin() && std::prev(after)->reach > range.begin) {
      --after;
      if (!budget.take(1)) return false;
      if (after->range.overlaps(range)) f(after->index);
    }
    return true;
  }

 private:
  struct Entry {
    AddrRange range;
    uint32_t index;
    Addr reach;
  };
  std::vector<Entry> ranges_;
};

Ranges ranges_of(std::span<const PokeRecord> pokes) {
  Ranges out;
  for (uint32_t i = 0; i < pokes.size(); ++i) out.add(poke_range(pokes[i]), i);
  out.sort();
  return out;
}

Ranges ranges_of_known_text(std::span<const Layer> layers) {
  Ranges out;
  for (uint32_t i = 0; i < layers.size(); ++i) {
    const Layer& l = layers[i];
    // A layer beside one with a soft end would end it.
    if (l.space == kKernelSpace && !l.bytes.empty() && !l.soft_until) out.add(l.range, i);
  }
  out.sort();
  return out;
}

// `beneath` at the site, with the site's bytes, from `from` to `until`.
void add_doubt(const PatchSite& site, const Layer& beneath, Time from, Time until, std::vector<Layer>& out) {
  Layer doubt = beneath;
  doubt.range = site.range;
  doubt.bytes = site.bytes;
  doubt.origin = site.origin;
  doubt.from = std::max(beneath.from, from);
  doubt.until = std::min(beneath.until, until);
  if (doubt.from <= doubt.until) out.push_back(doubt);
}

// The layer was read while a poke was in progress (breakpoint first, the first byte last): it shows neither
// state.
bool caught_in_between(const PatchSite& site, const Layer& beneath, std::optional<uint8_t> breakpoint) {
  return breakpoint && beneath.bytes[site.range.begin - beneath.range.begin] == *breakpoint &&
         site.bytes[0] != *breakpoint;
}

void doubt_site(const PatchSite& site, const Layer& beneath, const LostIndex& lost, const PatchRules& rules,
                std::vector<Layer>& out) {
  if (site.always || caught_in_between(site, beneath, rules.breakpoint))
    return add_doubt(site, beneath, kTimeMin, kTimeMax, out);
  // A layer that does not say when it was read is as memory was in the beginning.
  if (const auto w = lost.within(kTimeMin, beneath.observed))
    add_doubt(site, beneath, kTimeMin, std::min(w->until, beneath.observed), out);
  if (const auto w = lost.within(beneath.observed, kTimeMax))
    add_doubt(site, beneath, std::max(saturating_add(w->after, 1), beneath.observed), kTimeMax, out);
}

}  // namespace

std::vector<Layer> doubtful_sites(std::span<const PatchSite> sites, std::span<const Layer> layers,
                                  std::span<const PokeRecord> pokes, const LostIndex& lost,
                                  const PatchRules& rules, Budget& budget, NoticeLog& log) {
  std::vector<Layer> out;
  const bool any = std::ranges::any_of(sites, [&](const PatchSite& p) { return p.always || !lost.empty(); });
  if (!any) return out;
  const Ranges poked = ranges_of(pokes), text = ranges_of_known_text(layers);
  for (const PatchSite& site : sites) {
    bool recorded = false, affordable = true;
    affordable = poked.overlapping(site.range, budget, [&](uint32_t) { recorded = true; });
    if (recorded) continue;
    affordable = affordable && text.overlapping(site.range, budget, [&](uint32_t i) {
      if (layers[i].range.contains(site.range)) doubt_site(site, layers[i], lost, rules, out);
    });
    if (!affordable) {
      log.count(TextNotice::Kind::kTooComplex, site.range.begin, kTimeMin);
      break;
    }
  }
  return out;
}

}  // namespace asof
