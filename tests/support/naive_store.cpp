// NaiveStore: which bytes can be at a site at an instant, of all its lifetimes.
#include <algorithm>

#include "tests/support/naive_facts.h"
#include "tests/support/naive_store.h"

namespace asof::test {

// Where several contents are possible at one instant, a poke was made on one of them.
void NaiveStore::doubt_overlaps(AddrRange site, const std::vector<Lifetime>& lifetimes,
                                std::vector<LifetimeFacts>& facts) const {
  for (LifetimeFacts& a : facts) {
    // Parts of a lifetime that were copied at different times, one of them after a later change: nothing is
    // rolled back.
    std::set<Time> copied;
    for (const Layer* l : a.lifetime.choice) {
      if (l != nullptr && !l->bytes.empty()) copied.insert(l->observed);
    }
    for (const Layer* l : a.lifetime.choice) {
      if (l == nullptr || l->bytes.empty()) continue;
      for (const Poke& p : pokes_) {
        const AddrRange r = range_of(p.addr, std::max(p.old_bytes.size(), p.new_bytes.size()));
        a.doubtful =
            a.doubtful || (a.lifetime.epoch() && copied.size() > 1 && r.overlaps(site) &&
                           l->range.contains(r) && p.time > a.lifetime.shown_until && p.time <= l->observed);
      }
    }
    for (const LifetimeFacts& b : facts) {
      const Lifetime &x = a.lifetime, &y = b.lifetime;
      // Pokes are not followed where too many contents are possible.
      const bool lost_sight = y.over_limit && y.from <= x.from && !pokes_of(site, y).empty();
      a.doubtful =
          a.doubtful ||
          (x.epoch() && !x.over_limit && lost_sight &&
           std::ranges::any_of(x.choice, [&](const Layer* l) { return l != nullptr && l->from <= y.until; }));
      if (&a == &b || !x.epoch() || !y.epoch() || x.over_limit || y.over_limit) continue;
      const Lifetime both{std::max(x.from, y.from), std::min(x.shown_until, y.shown_until), {}};
      if (both.from > both.until || pokes_of(site, both).empty()) continue;
      if (!consistent(site, lifetimes, x) || !consistent(site, lifetimes, y)) a.doubtful = true;
    }
  }
  for (LifetimeFacts& later : facts) {
    for (const LifetimeFacts& earlier : facts) {
      Lifetime shown = earlier.lifetime;
      shown.until = shown.shown_until;
      later.doubtful = later.doubtful || (earlier.doubtful && later.lifetime.epoch() &&
                                          earlier.lifetime.epoch() && shows_again(later.lifetime, shown));
    }
  }
}

// Every text of one lifetime at instant t according to records and copies.
std::set<std::string> NaiveStore::recorded(AddrRange site, const LifetimeFacts& facts, Time t) const {
  std::set<std::string> texts;
  const Bytes now = value(site, facts.base, facts.lifetime, t);
  std::vector<Break> open;
  for (const Break& b : facts.breaks) {
    if (b.first <= t && t <= b.last) open.push_back(b);
  }
  // The copy's own bytes are a separate state, not part of a combination.
  std::vector<Bytes> states;
  for (size_t subset = 0; subset < (size_t{1} << open.size()); ++subset) {
    Bytes bytes = now;
    bool allowed = true;
    for (size_t i = 0; i < open.size(); ++i) {
      const bool taken = (subset >> i & 1) != 0;
      allowed = allowed && (taken || t <= open[i].last_old);
      if (!taken) continue;
      for (const auto& [offset, byte] : open[i].found) bytes[offset] = byte;
    }
    if (allowed) states.push_back(bytes);
  }
  if (const auto& extra = facts.extra; extra && extra->first <= t && t <= extra->last) {
    Bytes bytes = now;
    for (const auto& [offset, byte] : extra->found) bytes[offset] = byte;
    states.push_back(bytes);
  }
  for (const Bytes& bytes : states) {
    const bool known = std::ranges::all_of(bytes, [](const auto& b) { return b.has_value(); });
    std::string text;
    for (const auto& b : bytes) text += known ? std::string(1, static_cast<char>(*b)) : std::string();
    texts.insert(known ? text : "?");
  }
  return texts;
}

// The instants at which a record or the copy shows all bytes of the site.
void NaiveStore::find_sightings(AddrRange site, const std::vector<Lifetime>& lifetimes,
                                LifetimeFacts& facts) const {
  const Lifetime& lifetime = facts.lifetime;
  const auto spans = [&](const Poke& p, size_t size) { return range_of(p.addr, size).contains(site); };
  const bool again =
      std::ranges::any_of(lifetimes, [&](const Lifetime& l) { return shows_again(lifetime, l); });
  const std::optional<Time> observed = lifetime.observed();
  const auto is_base = [&](Time t) {
    const Bytes now = value(site, facts.base, lifetime, t);
    return now == facts.base && std::ranges::all_of(now, [](const auto& b) { return b.has_value(); });
  };
  const std::vector<const Poke*> pokes = pokes_of(site, lifetime);
  // Before any poke of the lifetime: value() also gives the instant before the first one.
  Bytes initial = facts.base;
  for (Addr a = site.begin; a < site.end; ++a) {
    const auto first = std::ranges::find_if(pokes, [&](const Poke* p) { return covers(*p, a); });
    if (first == pokes.end()) continue;
    if (old_at(**first, a) && !after_announced_end(site, lifetime, **first))
      initial[a - site.begin] = old_at(**first, a);
    else if (!old_at(**first, a) && observed.value_or(kTimeMin) >= (*first)->time)
      initial[a - site.begin] = std::nullopt;
  }
  const bool whole = std::ranges::all_of(facts.base, [](const auto& b) { return b.has_value(); });
  facts.sightings.push_back({lifetime.from, false,
                             lifetime.backed() && !again && whole && initial == facts.base &&
                                 observed.value_or(kTimeMin) <= lifetime.from});
  facts.lost_from = again   ? kTimeMin
                    : whole ? std::min(lifetime.from, observed.value_or(lifetime.from))
                            : lifetime.from;
  for (const Poke* p : pokes) {
    const Sighting s{p->time, spans(*p, p->old_bytes.size()),
                     spans(*p, p->new_bytes.empty() ? p->old_bytes.size() : p->new_bytes.size())};
    if (s.before || s.after) facts.sightings.push_back(s);
  }
  const auto main_chain_over = [&](const Break& b) {
    return b.first <= *observed && *observed <= b.last && *observed > b.last_old;
  };
  const bool inside = observed && !again && *observed > lifetime.from && *observed <= lifetime.until && whole;
  if (inside &&
      (facts.extra || (is_base(*observed) && std::ranges::none_of(facts.breaks, main_chain_over)))) {
    facts.sightings.push_back({*observed, true, true});
    std::ranges::stable_sort(facts.sightings, {}, &Sighting::time);
  }
}

const std::vector<NaiveStore::LifetimeFacts>& NaiveStore::facts_of(AddrRange site) const {
  const auto [it, fresh] = known_facts_.try_emplace({site.begin, site.end});
  if (!fresh) return it->second;
  const std::vector<Lifetime> all = lifetimes(site);
  for (const Lifetime& lifetime : all) {
    LifetimeFacts facts;
    facts.lifetime = lifetime;
    if (!lifetime.over_limit) {
      facts.base = base(site, all, lifetime);
      facts.breaks = breaks(site, lifetime);
      facts.extra = observation(site, all, lifetime);
      find_sightings(site, all, facts);
      std::set<Time> instants{lifetime.from, lifetime.until};
      const auto add = [&](Time t) {
        for (const Time x : {saturating_add(t, -1), t, saturating_add(t, 1)}) {
          if (x >= lifetime.from && x <= lifetime.until) instants.insert(x);
        }
      };
      for (const Poke& p : pokes_) add(p.time);
      for (const Break& b : facts.breaks) add(b.first), add(b.last_old), add(b.last);
      if (facts.extra) add(facts.extra->first), add(facts.extra->last);
      for (const Time t : instants) facts.states.merge(recorded(site, facts, t));
      facts.states.erase("?");
    }
    it->second.push_back(std::move(facts));
  }
  doubt_overlaps(site, all, it->second);
  return it->second;
}

// Can the site have been switched and switched back unseen around t?
bool NaiveStore::lost_at(const LifetimeFacts& facts, Time t) const {
  size_t k = facts.sightings.size() - 1;
  while (k > 0 && facts.sightings[k].time > t) --k;
  const Sighting& a = facts.sightings[k];
  const bool last = k + 1 == facts.sightings.size();
  const bool seen_after = !last && facts.sightings[k + 1].before;
  const Time end = last ? saturating_add(facts.lifetime.until, 1) : facts.sightings[k + 1].time;
  const Time begin = k == 0 ? facts.lost_from : a.time;
  const auto window = lost_between(begin, end);
  if (!window || !all_rings_) return window.has_value();
  uint64_t count = 0;
  for (const LostRecords& l : lost_) {
    if (l.after >= l.until || l.after >= end || l.until <= begin) continue;
    count += l.count == 0 ? 2 : std::min<uint64_t>(l.count, 2);
  }
  if (a.after && seen_after && count < 2) return false;
  return !(a.after && t <= window->first) && !(seen_after && t > window->second);
}

namespace {

// A key: NOP and one jump are the only two contents that are possible.
bool is_key(const std::set<std::string>& states) {
  std::set<std::string> jumps;
  for (const std::string& s : states) {
    if (s == "\x90" || s == "\x66\x90" || s == std::string("\x0f\x1f\x44\x00\x00", 5)) continue;
    if (!(s.size() == 2 && s[0] == '\xeb') && !(s.size() == 5 && s[0] == '\xe9')) return false;
    jumps.insert(s);
  }
  return !states.empty() && jumps.size() <= 1;
}

}  // namespace

std::set<std::string> NaiveStore::possible(AddrRange site, Time t) const {
  std::set<std::string> texts;
  for (const LifetimeFacts& facts : facts_of(site)) {
    const Lifetime& lifetime = facts.lifetime;
    if (facts.doubtful && t >= lifetime.from && t <= lifetime.shown_until) texts.insert("?");
    if (t < lifetime.from || t > lifetime.until) continue;
    if (lifetime.over_limit) {
      texts.insert("?");
      continue;
    }
    std::set<std::string> here = recorded(site, facts, t);
    if (!lifetime.backed()) here.erase("?");
    texts.merge(here);
    if (pokes_of(site, lifetime).empty() || !lost_at(facts, t)) continue;
    const bool few = facts.states.size() <= kMaxChoices;
    if (few) texts.insert(facts.states.begin(), facts.states.end());
    if (!few || !is_key(facts.states)) texts.insert("?");
  }
  return texts;
}

std::set<std::string> possible_texts(const Cell& cell, AddrRange part, Time t) {
  std::set<std::string> texts;
  for (const Version& v : cell.versions) {
    if (!v.possible_in({t, t})) continue;
    const auto* bytes = reinterpret_cast<const char*>(v.bytes);
    texts.insert(bytes == nullptr ? "?" : std::string(bytes + (part.begin - cell.range.begin), part.size()));
  }
  return texts;
}

}  // namespace asof::test
