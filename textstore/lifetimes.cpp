#include "textstore/lifetimes.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "textstore/version_list.h"

namespace asof {
namespace {

// One per part; without a layer: none there.
using Layers = std::vector<std::pair<const Layer*, Time>>;  // and Visible::announced

Lifetime lifetime_of(AddrRange site, const Visible& v) {
  Lifetime lifetime;
  lifetime.from = v.from;
  lifetime.until = v.until;
  lifetime.backed = true;
  lifetime.layer = v.layer;
  lifetime.announced = v.announced;
  lifetime.over_limit = v.layer == nullptr;
  if (lifetime.over_limit) return lifetime;
  if (!v.layer->bytes.empty()) {  // else nothing was observed, whatever the layer says
    lifetime.whole = v.layer->bytes.data() + (site.begin - v.layer->range.begin);
    lifetime.observed = v.layer->observed;
  }
  lifetime.origin = v.layer->origin;
  lifetime.epoch = v.layer->rank >= kRankEpoch;
  lifetime.unsure = v.layer->unsure;
  lifetime.sure_until = unsure_after(*v.layer, v.announced);
  return lifetime;
}

Lifetime assemble(AddrRange site, std::span<const LifetimePart> parts, const Layers& layers) {
  Lifetime lifetime;
  lifetime.bytes.resize(site.size());
  lifetime.known.resize(site.size());
  lifetime.announced_byte.assign(site.size(), kTimeMax);
  bool first = true, one_observation = true;
  for (size_t p = 0; p < parts.size(); ++p) {
    const auto [l, announced] = layers[p];
    if (l == nullptr) continue;
    lifetime.backed = true;
    lifetime.epoch = lifetime.epoch || l->rank >= kRankEpoch;
    lifetime.announced = std::min(lifetime.announced, announced);
    lifetime.unsure = lifetime.unsure || l->unsure;
    lifetime.sure_until = std::min(lifetime.sure_until, unsure_after(*l, announced));
    const size_t at = parts[p].range.begin - site.begin;
    lifetime.parts.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(parts[p].range.size()), l});
    std::fill_n(lifetime.announced_byte.begin() + static_cast<ptrdiff_t>(at), parts[p].range.size(),
                announced);
    if (l->bytes.empty()) continue;
    std::memcpy(lifetime.bytes.data() + at, l->bytes.data() + (parts[p].range.begin - l->range.begin),
                parts[p].range.size());
    std::memset(lifetime.known.data() + at, 1, parts[p].range.size());
    if (first) {
      lifetime.origin = l->origin;
      lifetime.observed = l->observed;
    }
    one_observation = one_observation && lifetime.observed == l->observed;
    first = false;
  }
  if (!one_observation) lifetime.observed = kTimeMin;
  return lifetime;
}

// Lifetimes of a site whose parts lie in different layers: every combination of the parts' candidates.
class Combiner {
 public:
  Combiner(AddrRange site, std::span<const LifetimePart> parts) : site_(site), parts_(parts) {}

  std::vector<Lifetime> run() {
    std::vector<Time> edges{kTimeMin};
    for (const LifetimePart& part : parts_) {
      for (const Visible& v : part.visible) {
        edges.push_back(v.from);
        if (v.until != kTimeMax) edges.push_back(v.until + 1);
      }
    }
    std::ranges::sort(edges);
    edges.erase(std::ranges::unique(edges).begin(), edges.end());
    next_.resize(parts_.size());
    live_.resize(parts_.size());
    for (size_t i = 0; i < edges.size(); ++i) {
      interval(edges[i], i + 1 < edges.size() ? edges[i + 1] - 1 : kTimeMax);
    }
    return std::move(lifetimes_);
  }

 private:
  void interval(Time from, Time until) {
    size_t combinations = 1;
    bool over_limit = false;
    for (size_t p = 0; p < parts_.size(); ++p) {
      std::vector<const Visible*>& live = live_[p];
      std::erase_if(live, [&](const Visible* v) { return v->until < from; });
      while (next_[p] < parts_[p].visible.size() && parts_[p].visible[next_[p]].from == from) {
        live.push_back(&parts_[p].visible[next_[p]++]);
      }
      for (const Visible* v : live) over_limit = over_limit || v->layer == nullptr;
      if (combinations <= kMaxCandidates) combinations *= std::max<size_t>(1, live.size());
    }
    if (over_limit || combinations > kMaxCandidates) {
      Lifetime lifetime;
      lifetime.from = from;
      lifetime.until = until;
      lifetime.backed = lifetime.over_limit = true;
      lifetimes_.push_back(std::move(lifetime));
      return;
    }
    for (size_t c = 0; c < combinations; ++c) add(from, until, c);
  }

  void add(Time from, Time until, size_t combination) {
    Layers layers(parts_.size());
    bool any = false;
    for (size_t p = 0; p < parts_.size(); ++p) {
      if (live_[p].empty()) continue;
      const Visible& v = *live_[p][combination % live_[p].size()];
      layers[p] = {v.layer, v.announced};
      combination /= live_[p].size();
      any = true;
    }
    if (!any) return;
    const auto [it, fresh] = open_.try_emplace(layers, lifetimes_.size());
    if (!fresh && lifetimes_[it->second].until + 1 == from) {
      lifetimes_[it->second].until = until;
      return;
    }
    it->second = lifetimes_.size();
    lifetimes_.push_back(assemble(site_, parts_, layers));
    lifetimes_.back().from = from;
    lifetimes_.back().until = until;
  }

  AddrRange site_;
  std::span<const LifetimePart> parts_;
  std::vector<size_t> next_;
  std::vector<std::vector<const Visible*>> live_;
  std::map<Layers, size_t> open_;
  std::vector<Lifetime> lifetimes_;
};

void add_unbacked(std::vector<Lifetime>& lifetimes) {
  const size_t backed = lifetimes.size();
  const auto add = [&](Time from, Time until) {
    Lifetime hole;
    hole.from = from;
    hole.until = until;
    lifetimes.push_back(std::move(hole));
  };
  Time next = kTimeMin;  // first instant no lifetime has reached yet
  bool open = true;
  for (size_t i = 0; i < backed && open; ++i) {
    if (lifetimes[i].from > next) add(next, lifetimes[i].from - 1);
    if (lifetimes[i].until == kTimeMax) {
      open = false;
    } else {
      next = std::max(next, lifetimes[i].until + 1);
    }
  }
  if (open) add(next, kTimeMax);
  if (lifetimes.size() != backed) std::ranges::sort(lifetimes, {}, &Lifetime::from);
}

}  // namespace

std::vector<Lifetime> make_lifetimes(AddrRange site, std::span<const LifetimePart> parts) {
  std::vector<Lifetime> lifetimes;
  if (parts.size() == 1) {
    for (const Visible& v : parts[0].visible) lifetimes.push_back(lifetime_of(site, v));
  } else {
    lifetimes = Combiner(site, parts).run();
  }
  add_unbacked(lifetimes);
  return lifetimes;
}

}  // namespace asof
