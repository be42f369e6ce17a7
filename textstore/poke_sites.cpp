#include "textstore/poke_sites.h"

#include <algorithm>
#include <compare>
#include <cstring>

namespace asof {
namespace {

// All pokes of one address and length.
struct Footprint {
  AddrRange range;
  uint32_t first;  // in the sorted keys
  uint32_t count;
  bool joins;  // replaces bytes
};

struct Key {
  Addr addr;
  uint16_t length;
  bool joins;
  uint32_t index;

  auto operator<=>(const Key&) const = default;
  bool same_footprint(const Key& o) const { return addr == o.addr && length == o.length && joins == o.joins; }
};

class SiteFinder {
 public:
  SiteFinder(std::span<const PokeRecord> pokes, std::span<const Addr> edges, Budget& budget)
      : edges_(edges), budget_(budget) {
    make_footprints(pokes);
    result_.members.reserve(pokes.size());
  }

  PokeSites run();

 private:
  void make_footprints(std::span<const PokeRecord> pokes);
  std::vector<AddrRange> clusters() const;
  std::vector<Addr> cuts(const std::vector<AddrRange>& clusters) const;
  void add_site(AddrRange range, const std::vector<uint32_t>& footprints);

  std::span<const Addr> edges_;
  Budget& budget_;
  std::vector<Key> keys_;
  std::vector<Footprint> footprints_;  // by begin
  PokeSites result_;
};

void SiteFinder::make_footprints(std::span<const PokeRecord> pokes) {
  keys_.reserve(pokes.size());
  for (uint32_t i = 0; i < pokes.size(); ++i) {
    const PokeRecord& p = pokes[i];
    keys_.push_back({p.addr, static_cast<uint16_t>(poke_length(p)), p.old_len != 0 && p.new_len != 0, i});
  }
  std::ranges::sort(keys_);
  for (uint32_t i = 0; i < keys_.size();) {
    uint32_t end = i + 1;
    while (end < keys_.size() && keys_[end].same_footprint(keys_[i])) ++end;
    footprints_.push_back({range_of(keys_[i].addr, keys_[i].length), i, end - i, keys_[i].joins});
    i = end;
  }
}

std::vector<AddrRange> SiteFinder::clusters() const {
  std::vector<AddrRange> clusters;
  for (const Footprint& f : footprints_) {
    if (!f.joins) continue;
    if (!clusters.empty() && clusters.back().overlaps(f.range)) {
      clusters.back().end = std::max(clusters.back().end, f.range.end);
    } else {
      clusters.push_back(f.range);
    }
  }
  return clusters;
}

// Every address where a site begins or ends. An edge of an install or of a layer inside a cluster does not
// cut it.
std::vector<Addr> SiteFinder::cuts(const std::vector<AddrRange>& clusters) const {
  std::vector<Addr> cuts;
  for (const AddrRange& c : clusters) {
    cuts.push_back(c.begin);
    cuts.push_back(c.end);
  }
  const auto inside = [&](Addr a) {
    auto after = std::ranges::upper_bound(clusters, a, {}, &AddrRange::begin);
    return after != clusters.begin() && std::prev(after)->begin < a && a < std::prev(after)->end;
  };
  for (const Footprint& f : footprints_) {
    if (f.joins) continue;
    for (Addr a : {f.range.begin, f.range.end}) {
      if (!inside(a)) cuts.push_back(a);
    }
  }
  for (Addr a : edges_) {
    if (!inside(a)) cuts.push_back(a);
  }
  std::ranges::sort(cuts);
  cuts.erase(std::ranges::unique(cuts).begin(), cuts.end());
  return cuts;
}

void SiteFinder::add_site(AddrRange range, const std::vector<uint32_t>& footprints) {
  PokeSite site{range, static_cast<uint32_t>(result_.members.size()), 0, false};
  uint64_t total = 0;
  for (uint32_t f : footprints) total += footprints_[f].count;
  if (!budget_.take(total)) {
    site.over_limit = true;
  } else {
    for (uint32_t f : footprints) {
      for (uint32_t k = 0; k < footprints_[f].count; ++k) {
        result_.members.push_back(keys_[footprints_[f].first + k].index);
      }
    }
    site.count = static_cast<uint32_t>(total);
    if (footprints.size() > 1) std::sort(result_.members.end() - site.count, result_.members.end());
  }
  result_.sites.push_back(site);
}

PokeSites SiteFinder::run() {
  const std::vector<Addr> cut = cuts(clusters());
  std::vector<uint32_t> live, here;
  size_t next = 0;
  for (size_t i = 0; i + 1 < cut.size(); ++i) {
    const AddrRange range{cut[i], cut[i + 1]};
    while (next < footprints_.size() && footprints_[next].range.begin < range.end) {
      live.push_back(static_cast<uint32_t>(next++));
    }
    if (!budget_.take(live.size())) {
      result_.sites.push_back(
          {{range.begin, cut.back()}, static_cast<uint32_t>(result_.members.size()), 0, true});
      break;
    }
    std::erase_if(live, [&](uint32_t f) { return footprints_[f].range.end <= range.begin; });
    here = live;
    std::erase_if(here, [&](uint32_t f) { return !footprints_[f].range.overlaps(range); });
    if (!here.empty()) add_site(range, here);
  }
  return std::move(result_);
}

std::strong_ordering compare_content(const PokeRecord& a, const PokeRecord& b) {
  if (auto c = a.addr <=> b.addr; c != 0) return c;
  if (auto c = a.old_len <=> b.old_len; c != 0) return c;
  if (auto c = a.new_len <=> b.new_len; c != 0) return c;
  if (a.bytes == b.bytes) return std::strong_ordering::equal;
  return std::memcmp(a.bytes, b.bytes, size_t{a.old_len} + a.new_len) <=> 0;
}

bool in_order(const PokeRecord& a, const PokeRecord& b) {
  if (a.time != b.time) return a.time < b.time;
  if (a.file_offset != b.file_offset) return a.file_offset < b.file_offset;
  if (a.source != b.source) return a.source < b.source;
  return compare_content(a, b) < 0;
}

}  // namespace

PokeSites find_sites(std::span<const PokeRecord> pokes, std::span<const Addr> layer_edges, Budget& budget) {
  return SiteFinder(pokes, layer_edges, budget).run();
}

size_t sort_pokes(std::vector<PokeRecord>& pokes, NoticeLog& log) {
  if (!std::ranges::is_sorted(pokes, in_order)) std::ranges::sort(pokes, in_order);
  std::vector<uint32_t> run;
  std::vector<bool> twice;
  for (uint32_t i = 0; i < pokes.size();) {
    uint32_t end = i + 1;
    while (end < pokes.size() && pokes[end].time == pokes[i].time) ++end;
    if (end - i > 1) {
      run.clear();
      for (uint32_t k = i; k < end; ++k) run.push_back(k);
      // Of two equal ones the first in the file stays.
      std::ranges::sort(run, [&](uint32_t a, uint32_t b) {
        const auto c = compare_content(pokes[a], pokes[b]);
        return c != 0 ? c < 0 : a < b;
      });
      for (size_t k = 1; k < run.size(); ++k) {
        if (compare_content(pokes[run[k - 1]], pokes[run[k]]) != 0) continue;
        if (twice.empty()) twice.resize(pokes.size());
        twice[run[k]] = true;
        log.count(TextNotice::Kind::kDuplicatePoke, pokes[run[k]].addr, pokes[run[k]].time);
      }
    }
    i = end;
  }
  if (twice.empty()) return 0;
  size_t kept = 0;
  for (size_t i = 0; i < pokes.size(); ++i) {
    if (!twice[i]) pokes[kept++] = pokes[i];
  }
  const size_t dropped = pokes.size() - kept;
  pokes.resize(kept);
  return dropped;
}

}  // namespace asof
