// NaiveStore: the bytes at a site in each of its lifetimes, and which of them can be there at an instant.
#include <algorithm>

#include "tests/support/naive_facts.h"
#include "tests/support/naive_store.h"

namespace asof::test {

std::vector<const Poke*> NaiveStore::pokes_of(AddrRange site, const Lifetime& lifetime) const {
  std::vector<const Poke*> found;
  for (const Poke& p : pokes_) {
    const AddrRange r = range_of(p.addr, std::max(p.old_bytes.size(), p.new_bytes.size()));
    if (r.overlaps(site) && p.time >= lifetime.from && p.time <= lifetime.until) found.push_back(&p);
  }
  return found;
}

void NaiveStore::roll(AddrRange site, Bytes& bytes, const Poke& poke, bool forward) const {
  if (poke.old_bytes.empty() || poke.new_bytes.empty()) return;
  for (Addr a = site.begin; a < site.end; ++a) {
    const auto from = forward ? old_at(poke, a) : new_at(poke, a);
    if (from && bytes[a - site.begin] != from) return;
  }
  for (Addr a = site.begin; a < site.end; ++a) {
    const auto to = forward ? new_at(poke, a) : old_at(poke, a);
    if (to) bytes[a - site.begin] = to;
  }
}

// Does `lifetime` show a layer that `earlier` showed at the same address?
bool NaiveStore::shows_again(const Lifetime& lifetime, const Lifetime& earlier) {
  if (earlier.over_limit || lifetime.over_limit || earlier.until >= lifetime.from) return false;
  for (size_t i = 0; i < lifetime.choice.size(); ++i) {
    if (lifetime.choice[i] != nullptr && lifetime.choice[i] == earlier.choice[i]) return true;
  }
  return false;
}

// The bytes of the layers, with the pokes between their observation and this lifetime, where there was no
// other content.
NaiveStore::Bytes NaiveStore::base(AddrRange site, const std::vector<Lifetime>& lifetimes,
                                   const Lifetime& lifetime) const {
  Bytes bytes;
  for (Addr a = site.begin; a < site.end; ++a)
    bytes.push_back(layer_byte(lifetime.choice[a - site.begin], a));
  if (!lifetime.backed()) return bytes;
  Time others_until = kTimeMin;
  bool others = false;
  Time next_from = kTimeMax;
  std::vector<Time> left_at(site.size(), kTimeMin);
  for (const Lifetime& l : lifetimes) {
    // A layer that was there before: as it was left then.
    if (shows_again(lifetime, l)) {
      const Bytes last = value(site, base(site, lifetimes, l), l, l.until);
      for (size_t i = 0; i < site.size(); ++i) {
        if (lifetime.choice[i] == nullptr || l.choice[i] != lifetime.choice[i] || l.until < left_at[i])
          continue;
        bytes[i] = last[i];
        left_at[i] = l.until;
      }
    }
    if (l.backed() && l.from < lifetime.from) {
      others_until = std::max(others_until, l.until);
      others = true;
    }
    if (l.backed() && l.from > lifetime.shown_until) next_from = std::min(next_from, l.from);
  }
  const Time observed = lifetime.observed().value_or(kTimeMin);
  for (const Poke& p : pokes_) {
    const AddrRange r = range_of(p.addr, std::max(p.old_bytes.size(), p.new_bytes.size()));
    if (r.overlaps(site) && p.time < lifetime.from && p.time > observed &&
        !(others && p.time <= others_until)) {
      roll(site, bytes, p, true);
    }
  }
  for (auto p = pokes_.rbegin(); p != pokes_.rend(); ++p) {
    const AddrRange r = range_of(p->addr, std::max(p->old_bytes.size(), p->new_bytes.size()));
    if (r.overlaps(site) && p->time > lifetime.shown_until && p->time <= observed && p->time < next_from) {
      roll(site, bytes, *p, false);
    }
  }
  return bytes;
}

// The chain alone: the last poke's new bytes, or the next one's old bytes, or the base.
NaiveStore::Bytes NaiveStore::value(AddrRange site, const Bytes& base, const Lifetime& lifetime,
                                    Time t) const {
  const std::vector<const Poke*> pokes = pokes_of(site, lifetime);
  Bytes bytes(site.size());
  for (Addr a = site.begin; a < site.end; ++a) {
    const Poke *before = nullptr, *first = nullptr;
    for (const Poke* p : pokes) {
      if (!covers(*p, a)) continue;
      if (p->time <= t) before = p;
      if (first == nullptr) first = p;
    }
    std::optional<uint8_t>& byte = bytes[a - site.begin];
    if (before != nullptr) {
      byte = left_at(*before, a);
    } else if (first != nullptr && old_at(*first, a)) {
      byte = old_at(*first, a);
    } else if (first == nullptr || lifetime.observed().value_or(kTimeMin) < first->time) {
      byte = base[a - site.begin];
    }
  }
  return bytes;
}

std::optional<std::pair<Time, Time>> NaiveStore::lost_between(Time after, Time before) const {
  std::optional<std::pair<Time, Time>> window;
  for (const LostRecords& l : lost_) {
    if (l.after >= l.until || l.after >= before || l.until <= after) continue;
    window = window ? std::pair{std::min(window->first, l.after), std::max(window->second, l.until)}
                    : std::pair{l.after, l.until};
  }
  return window;
}

std::vector<NaiveStore::Break> NaiveStore::breaks(AddrRange site, const Lifetime& lifetime) const {
  const std::vector<const Poke*> pokes = pokes_of(site, lifetime);
  std::map<std::pair<size_t, size_t>, Break> found;  // by the poke that did not fit and the one before
  for (size_t k = 0; k < pokes.size(); ++k) {
    for (Addr a = site.begin; a < site.end; ++a) {
      const auto old = old_at(*pokes[k], a);
      size_t before = k;
      while (before > 0 && !covers(*pokes[before - 1], a)) --before;
      if (!old || before == 0) continue;
      const Poke& b = *pokes[before - 1];
      if (left_at(b, a) == old || b.time == pokes[k]->time) continue;
      Break& entry = found[{k, before - 1}];
      entry.found[a - site.begin] = *old;
      entry.first = b.time + 1;
      entry.last = entry.last_old = pokes[k]->time - 1;
      if (const auto lost = lost_between(b.time, pokes[k]->time); lost && all_rings_) {
        entry.first = std::max(entry.first, lost->first + 1);
        entry.last_old = std::min(entry.last_old, lost->second);
      }
    }
  }
  std::vector<Break> breaks;
  for (const auto& [key, entry] : found) breaks.push_back(entry);
  return breaks;
}

// The layer's own bytes as an extra candidate where pokes decide otherwise and the bytes fit no state.
std::optional<NaiveStore::Break> NaiveStore::observation(AddrRange site,
                                                         const std::vector<Lifetime>& lifetimes,
                                                         const Lifetime& lifetime) const {
  const auto observed = lifetime.observed();
  const std::vector<const Poke*> pokes = pokes_of(site, lifetime);
  if (!observed || *observed < lifetime.from || *observed > lifetime.until || pokes.empty())
    return std::nullopt;
  const Bytes says = base(site, lifetimes, lifetime);
  // Offsets whose byte the first poke of this lifetime found; and those of them whose byte the copy gives,
  // too.
  std::vector<size_t> first_found, decided;
  for (Addr a = site.begin; a < site.end; ++a) {
    const auto first = std::ranges::find_if(pokes, [&](const Poke* p) { return covers(*p, a); });
    if (first == pokes.end() || !old_at(**first, a) || after_announced_end(site, lifetime, **first)) continue;
    first_found.push_back(a - site.begin);
    if (says[a - site.begin]) decided.push_back(a - site.begin);
  }
  const auto agrees = [&](const Bytes& bytes) {
    return std::ranges::all_of(decided, [&](size_t i) { return bytes[i] == says[i]; });
  };
  if (agrees(value(site, says, lifetime, *observed))) return std::nullopt;
  Time before = lifetime.from, next = lifetime.until == kTimeMax ? kTimeMax : lifetime.until + 1;
  bool any_before = false;
  for (const Poke* p : pokes) {
    if (p->time <= *observed) {
      before = p->time;
      any_before = true;
    } else {
      next = std::min(next, p->time);
      if (agrees(value(site, says, lifetime, p->time))) return std::nullopt;
    }
  }
  // Pokes of the next content that were made before it was announced.
  std::optional<Time> next_from;
  for (const Lifetime& l : lifetimes) {
    if (l.backed() && l.from > lifetime.shown_until) next_from = std::min(next_from.value_or(l.from), l.from);
  }
  const Bytes end = value(site, says, lifetime, lifetime.until);
  for (const Lifetime& l : lifetimes) {
    if (!l.backed() || l.from != next_from) continue;
    const auto fits = [&](size_t i) { return layer_byte(l.choice[i], site.begin + i) == end[i]; };
    if (std::ranges::all_of(first_found, fits)) return std::nullopt;
  }
  Break extra;
  for (size_t i : decided) extra.found[i] = *says[i];
  const Time last = next == kTimeMax ? kTimeMax : next - 1;
  extra.last_old = last;
  if (any_before) {
    const auto lost = lost_between(before, *observed + 1);
    // A copy that shows an earlier state is merely older than it claims.
    const auto was_so = [&](Time t) { return agrees(value(site, says, lifetime, t)); };
    const auto earlier = [&](const Poke* p) { return p->time < before && was_so(p->time); };
    if (!lost && (was_so(pokes.front()->time - 1) || std::ranges::any_of(pokes, earlier)))
      return std::nullopt;
    extra.first = lost && all_rings_ ? std::max(before, lost->first) + 1 : before;
    extra.last = last;
  } else {
    const auto lost = lost_between(*observed, next);
    extra.first = lifetime.from;
    extra.last = lost && all_rings_ ? std::min(last, std::max(*observed, lost->second)) : last;
  }
  return extra;
}

// Does each poke of a lifetime find what the one before left, and does the copy show one of its states (from
// the time of the copy on, if that is known)?
bool NaiveStore::consistent(AddrRange site, const std::vector<Lifetime>& lifetimes,
                            const Lifetime& lifetime) const {
  const std::vector<const Poke*> pokes = pokes_of(site, lifetime);
  for (size_t k = 0; k < pokes.size(); ++k) {
    for (Addr a = site.begin; a < site.end; ++a) {
      size_t before = k;
      while (before > 0 && !covers(*pokes[before - 1], a)) --before;
      const auto old = old_at(*pokes[k], a);
      if (old && before != 0 && left_at(*pokes[before - 1], a) != old) return false;
    }
  }
  if (!lifetime.backed() || pokes.empty()) return true;
  const auto observed = lifetime.observed();
  const bool dated = observed && *observed >= lifetime.from && *observed <= lifetime.shown_until;
  if (dated && *observed > lifetime.until) return true;
  const Bytes says = base(site, lifetimes, lifetime);
  std::vector<size_t> decided;
  for (Addr a = site.begin; a < site.end; ++a) {
    const auto first = std::ranges::find_if(pokes, [&](const Poke* p) { return covers(*p, a); });
    if (first == pokes.end() || !old_at(**first, a) || after_announced_end(site, lifetime, **first)) continue;
    if (says[a - site.begin]) decided.push_back(a - site.begin);
  }
  std::vector<Time> states{lifetime.from};
  for (const Poke* p : pokes) states.push_back(p->time);
  for (size_t i = 0; i < states.size(); ++i) {
    if (i + 1 < states.size() && states[i + 1] == states[i]) continue;
    if (dated && i + 1 < states.size() && states[i + 1] <= *observed) continue;
    const Bytes now = value(site, says, lifetime, states[i]);
    if (std::ranges::all_of(decided, [&](size_t b) { return now[b] == says[b]; })) return true;
    if (dated) return false;
  }
  return false;
}

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
      for (const Poke& p : pokes_) {
        const AddrRange r = range_of(p.addr, std::max(p.old_bytes.size(), p.new_bytes.size()));
        a.doubtful =
            a.doubtful || (a.lifetime.epoch() && copied.size() > 1 && l != nullptr && r.overlaps(site) &&
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
  const auto [it, fresh] = asked_.try_emplace({site.begin, site.end});
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

}  // namespace asof::test
