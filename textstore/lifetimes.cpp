#include "textstore/lifetimes.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "textstore/version_list.h"

namespace asof {
namespace {

// One per part; without a layer: none there.
using Layers = std::vector<std::pair<const Layer*, Time>>;  // and Visible::announced

Life life_of(AddrRange site, const Visible& v) {
  Life life;
  life.from = v.from;
  life.until = v.until;
  life.claimed = true;
  life.layer = v.layer;
  life.announced = v.announced;
  life.crowded = v.layer == nullptr;
  if (life.crowded) return life;
  if (!v.layer->bytes.empty()) life.whole = v.layer->bytes.data() + (site.begin - v.layer->range.begin);
  life.origin = v.layer->origin;
  life.observed = v.layer->observed;
  life.epoch = v.layer->rank >= kRankEpoch;
  life.unsure = v.layer->unsure;
  life.sure_until = unsure_after(*v.layer, v.announced);
  return life;
}

Life assemble(AddrRange site, std::span<const LifePart> parts, const Layers& layers) {
  Life life;
  life.bytes.resize(site.size());
  life.known.resize(site.size());
  life.announced_byte.assign(site.size(), kTimeMax);
  bool first = true, one_observation = true;
  for (size_t p = 0; p < parts.size(); ++p) {
    const auto [l, announced] = layers[p];
    if (l == nullptr) continue;
    life.claimed = true;
    life.epoch = life.epoch || l->rank >= kRankEpoch;
    life.announced = std::min(life.announced, announced);
    life.unsure = life.unsure || l->unsure;
    life.sure_until = std::min(life.sure_until, unsure_after(*l, announced));
    const size_t at = parts[p].range.begin - site.begin;
    life.parts.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(parts[p].range.size()), l});
    std::fill_n(life.announced_byte.begin() + static_cast<ptrdiff_t>(at), parts[p].range.size(), announced);
    if (l->bytes.empty()) continue;
    std::memcpy(life.bytes.data() + at, l->bytes.data() + (parts[p].range.begin - l->range.begin),
                parts[p].range.size());
    std::memset(life.known.data() + at, 1, parts[p].range.size());
    if (first) {
      life.origin = l->origin;
      life.observed = l->observed;
    }
    one_observation = one_observation && life.observed == l->observed;
    first = false;
  }
  if (!one_observation) life.observed = kTimeMin;
  return life;
}

// Lives of a site whose parts lie in different layers: every combination of the parts' candidates.
class Combiner {
 public:
  Combiner(AddrRange site, std::span<const LifePart> parts) : site_(site), parts_(parts) {}

  std::vector<Life> run() {
    std::vector<Time> edges{kTimeMin};
    for (const LifePart& part : parts_) {
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
    return std::move(lives_);
  }

 private:
  void interval(Time from, Time until) {
    size_t combinations = 1;
    bool crowded = false;
    for (size_t p = 0; p < parts_.size(); ++p) {
      std::vector<const Visible*>& live = live_[p];
      std::erase_if(live, [&](const Visible* v) { return v->until < from; });
      while (next_[p] < parts_[p].visible.size() && parts_[p].visible[next_[p]].from == from) {
        live.push_back(&parts_[p].visible[next_[p]++]);
      }
      for (const Visible* v : live) crowded = crowded || v->layer == nullptr;
      if (combinations <= kMaxCandidates) combinations *= std::max<size_t>(1, live.size());
    }
    if (crowded || combinations > kMaxCandidates) {
      Life life;
      life.from = from;
      life.until = until;
      life.claimed = life.crowded = true;
      lives_.push_back(std::move(life));
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
    const auto [it, fresh] = open_.try_emplace(layers, lives_.size());
    if (!fresh && lives_[it->second].until + 1 == from) {
      lives_[it->second].until = until;
      return;
    }
    it->second = lives_.size();
    lives_.push_back(assemble(site_, parts_, layers));
    lives_.back().from = from;
    lives_.back().until = until;
  }

  AddrRange site_;
  std::span<const LifePart> parts_;
  std::vector<size_t> next_;
  std::vector<std::vector<const Visible*>> live_;
  std::map<Layers, size_t> open_;
  std::vector<Life> lives_;
};

void add_unclaimed(std::vector<Life>& lives) {
  const size_t claimed = lives.size();
  const auto add = [&](Time from, Time until) {
    Life hole;
    hole.from = from;
    hole.until = until;
    lives.push_back(std::move(hole));
  };
  Time next = kTimeMin;  // first instant no life has reached yet
  bool open = true;
  for (size_t i = 0; i < claimed && open; ++i) {
    if (lives[i].from > next) add(next, lives[i].from - 1);
    if (lives[i].until == kTimeMax) {
      open = false;
    } else {
      next = std::max(next, lives[i].until + 1);
    }
  }
  if (open) add(next, kTimeMax);
  if (lives.size() != claimed) std::ranges::sort(lives, {}, &Life::from);
}

}  // namespace

std::vector<Life> make_lives(AddrRange site, std::span<const LifePart> parts) {
  std::vector<Life> lives;
  if (parts.size() == 1) {
    for (const Visible& v : parts[0].visible) lives.push_back(life_of(site, v));
  } else {
    lives = Combiner(site, parts).run();
  }
  add_unclaimed(lives);
  return lives;
}

}  // namespace asof
