// NaiveStore: the bytes at a site in one of its lifetimes, from the layers and the chain of its pokes.
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
  const Bytes copied = base(site, lifetimes, lifetime);
  // Offsets whose byte the first poke of this lifetime found; and those of them whose byte the copy gives,
  // too.
  std::vector<size_t> first_found, decided;
  for (Addr a = site.begin; a < site.end; ++a) {
    const auto first = std::ranges::find_if(pokes, [&](const Poke* p) { return covers(*p, a); });
    if (first == pokes.end() || !old_at(**first, a) || after_announced_end(site, lifetime, **first)) continue;
    first_found.push_back(a - site.begin);
    if (copied[a - site.begin]) decided.push_back(a - site.begin);
  }
  const auto agrees = [&](const Bytes& bytes) {
    return std::ranges::all_of(decided, [&](size_t i) { return bytes[i] == copied[i]; });
  };
  if (agrees(value(site, copied, lifetime, *observed))) return std::nullopt;
  Time before = lifetime.from, next = lifetime.until == kTimeMax ? kTimeMax : lifetime.until + 1;
  bool any_before = false;
  for (const Poke* p : pokes) {
    if (p->time <= *observed) {
      before = p->time;
      any_before = true;
    } else {
      next = std::min(next, p->time);
      if (agrees(value(site, copied, lifetime, p->time))) return std::nullopt;
    }
  }
  // Pokes of the next content that were made before it was announced.
  std::optional<Time> next_from;
  for (const Lifetime& l : lifetimes) {
    if (l.backed() && l.from > lifetime.shown_until) next_from = std::min(next_from.value_or(l.from), l.from);
  }
  const Bytes end = value(site, copied, lifetime, lifetime.until);
  for (const Lifetime& l : lifetimes) {
    if (!l.backed() || l.from != next_from) continue;
    const auto fits = [&](size_t i) { return layer_byte(l.choice[i], site.begin + i) == end[i]; };
    if (std::ranges::all_of(first_found, fits)) return std::nullopt;
  }
  Break extra;
  for (size_t i : decided) extra.found[i] = *copied[i];
  const Time last = next == kTimeMax ? kTimeMax : next - 1;
  extra.last_old = last;
  if (any_before) {
    const auto lost = lost_between(before, *observed + 1);
    // A copy that shows an earlier state is merely older than it claims.
    const auto was_so = [&](Time t) { return agrees(value(site, copied, lifetime, t)); };
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
  const Bytes copied = base(site, lifetimes, lifetime);
  std::vector<size_t> decided;
  for (Addr a = site.begin; a < site.end; ++a) {
    const auto first = std::ranges::find_if(pokes, [&](const Poke* p) { return covers(*p, a); });
    if (first == pokes.end() || !old_at(**first, a) || after_announced_end(site, lifetime, **first)) continue;
    if (copied[a - site.begin]) decided.push_back(a - site.begin);
  }
  std::vector<Time> states{lifetime.from};
  for (const Poke* p : pokes) states.push_back(p->time);
  for (size_t i = 0; i < states.size(); ++i) {
    if (i + 1 < states.size() && states[i + 1] == states[i]) continue;
    if (dated && i + 1 < states.size() && states[i + 1] <= *observed) continue;
    const Bytes now = value(site, copied, lifetime, states[i]);
    if (std::ranges::all_of(decided, [&](size_t b) { return now[b] == copied[b]; })) return true;
    if (dated) return false;
  }
  return false;
}

}  // namespace asof::test
