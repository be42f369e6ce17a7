// NaiveStore: which layers' code is at a site during which interval (its lifetimes), by the layers alone and
// by the pokes that end it.
#include <algorithm>

#include "tests/support/naive_facts.h"
#include "tests/support/naive_store.h"

namespace asof::test {

bool NaiveStore::Lifetime::backed() const {
  return over_limit || std::ranges::any_of(choice, [](const Layer* l) { return l != nullptr; });
}

bool NaiveStore::Lifetime::epoch() const {
  return std::ranges::any_of(choice, [](const Layer* l) { return l != nullptr && l->rank >= kRankEpoch; });
}

std::optional<Time> NaiveStore::Lifetime::observed() const {
  std::optional<Time> time;
  for (const Layer* l : choice) {
    if (l == nullptr || l->bytes.empty()) continue;
    if (time && *time != l->observed) return std::nullopt;
    time = l->observed;
  }
  if (time == kTimeMin) return std::nullopt;
  return time;
}

Time NaiveStore::soft_end(const Layer& layer, Addr a) const {
  if (!layer.soft_until) return layer.until;
  std::optional<Time> claim;
  for (const Layer& l : layers_) {
    if (l.range.contains(a) && l.rank >= layer.rank && l.from > layer.from)
      claim = std::min(claim.value_or(l.from), l.from);
  }
  return claim ? std::max(layer.until, *claim - 1) : kTimeMax;
}

Time NaiveStore::announced_end(const Layer& layer, Addr a) const {
  if (!layer.soft_until) return layer.until;
  Time end = layer.until;
  for (const Layer& l : layers_) {
    if (l.range.contains(a) && l.rank >= layer.rank && l.from > layer.from) end = std::min(end, l.from - 1);
  }
  return std::max(end, layer.from);
}

std::set<const Layer*> NaiveStore::candidates(Addr a, Time t) const {
  std::vector<const Layer*> live;
  for (const Layer& l : layers_) {
    if (l.range.contains(a) && l.from <= t && soft_end(l, a) >= t) live.push_back(&l);
  }
  std::set<const Layer*> best;
  for (const Layer* l : live) {
    const bool outranked = std::ranges::any_of(live, [&](const Layer* o) { return o->rank > l->rank; });
    const bool gives_way = l->bytes.empty() && std::ranges::any_of(live, [&](const Layer* o) {
                             return o->rank == l->rank && !o->bytes.empty() && o->from >= l->from;
                           });
    if (!outranked && !gives_way) best.insert(l);
  }
  return best;
}

bool NaiveStore::alike(Addr a, Addr b) const {
  std::set<Time> edges{kTimeMin};
  for (const Layer& l : layers_) {
    for (Addr x : {a, b}) {
      edges.insert(l.from);
      if (soft_end(l, x) != kTimeMax) edges.insert(soft_end(l, x) + 1);
    }
  }
  return std::ranges::all_of(edges, [&](Time t) { return candidates(a, t) == candidates(b, t); });
}

// Adjacent bytes that have the same candidates at all times take the same one.
std::vector<NaiveStore::Choice> NaiveStore::choices(AddrRange site, Time t) const {
  std::vector<Choice> all{{}};
  for (Addr a = site.begin; a < site.end; ++a) {
    const std::set<const Layer*> here = candidates(a, t);
    const bool follows = a != site.begin && alike(a - 1, a);
    std::vector<Choice> longer;
    for (const Choice& c : all) {
      if (follows || here.empty()) {
        longer.push_back(c);
        longer.back().push_back(follows ? c.back() : nullptr);
        continue;
      }
      for (const Layer* l : here) {
        longer.push_back(c);
        longer.back().push_back(l);
      }
    }
    all = longer;
  }
  return all;
}

std::vector<NaiveStore::Lifetime> NaiveStore::shown_lifetimes(AddrRange site) const {
  std::set<Time> edges{kTimeMin};
  for (const Layer& l : layers_) {
    if (!l.range.overlaps(site)) continue;
    edges.insert(l.from);
    for (Addr a = site.begin; a < site.end; ++a) {
      if (l.range.contains(a) && soft_end(l, a) != kTimeMax) edges.insert(soft_end(l, a) + 1);
    }
  }
  std::vector<Lifetime> lifetimes;
  for (auto e = edges.begin(); e != edges.end(); ++e) {
    const Time until = std::next(e) == edges.end() ? kTimeMax : *std::next(e) - 1;
    const std::vector<Choice> here = choices(site, *e);
    if (here.size() > kMaxChoices) {
      lifetimes.push_back({.from = *e, .until = until, .choice = Choice(site.size()), .over_limit = true});
      continue;
    }
    for (const Choice& c : here) {
      const auto same = std::ranges::find_if(lifetimes, [&](const Lifetime& l) {
        return !l.over_limit && l.until != kTimeMax && l.until + 1 == *e && l.choice == c;
      });
      if (same != lifetimes.end()) {
        same->until = until;
      } else {
        lifetimes.push_back({.from = *e, .until = until, .choice = c});
      }
    }
  }
  return lifetimes;
}

bool NaiveStore::after_announced_end(AddrRange site, const Lifetime& lifetime, const Poke& poke) const {
  for (Addr a = site.begin; a < site.end; ++a) {
    const Layer* layer = lifetime.choice[a - site.begin];
    if (layer != nullptr && covers(poke, a) && poke.time > announced_end(*layer, a)) return true;
  }
  return false;
}

// Lifetimes end at a poke after their announced end that does not fit: it was made on the next content.
std::vector<NaiveStore::Lifetime> NaiveStore::lifetimes(AddrRange site) const {
  std::vector<Lifetime> shown = shown_lifetimes(site);
  for (Lifetime& l : shown) l.shown_until = l.until;
  std::vector<Lifetime> done, successors;
  for (size_t i = 0; i < shown.size(); ++i) {
    // Lifetimes before this one count with their final end, later ones with the end that the layers show.
    std::vector<Lifetime> now = done;
    now.insert(now.end(), shown.begin() + static_cast<ptrdiff_t>(i), shown.end());
    Lifetime lifetime = shown[i];
    for (const Poke* p : pokes_of(site, shown[i])) {
      if (lifetime.over_limit || !after_announced_end(site, lifetime, *p)) continue;
      Lifetime until_now = lifetime;
      until_now.until = p->time - 1;
      const Bytes bytes = value(site, base(site, now, lifetime), until_now, p->time - 1);
      bool fits = !p->old_bytes.empty();
      for (Addr a = site.begin; a < site.end; ++a)
        fits = fits && (!old_at(*p, a) || old_at(*p, a) == bytes[a - site.begin]);
      if (fits) continue;
      lifetime.until = p->time - 1;
      Lifetime next{.from = p->time, .until = shown[i].until, .choice = Choice(site.size())};
      bool taken = false;
      for (size_t k = 0; k < shown.size(); ++k) {
        if (k == i || !shown[k].backed()) continue;
        taken = taken || (shown[k].from <= next.from && shown[k].until >= next.from);
        if (shown[k].from > next.from) next.until = std::min(next.until, shown[k].from - 1);
      }
      if (!taken) successors.push_back(next);
      break;
    }
    done.push_back(lifetime);
  }
  done.insert(done.end(), successors.begin(), successors.end());
  return done;
}

}  // namespace asof::test
