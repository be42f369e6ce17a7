#include "textstore/site_versions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "textstore/patch_replay.h"
#include "textstore/poke_order.h"

namespace asof {
namespace {

// Two events of one recording can both ask for pokes; each formats the record with a clock reading of its
// own. No site can be poked, poked back and poked again in this time: that takes several rounds of interrupts
// to all CPUs.
constexpr Time kSamePoke = 5000;  // ns

bool same_poke(const PokeRecord& a, const PokeRecord& b) {
  return a.addr == b.addr && a.old_len == b.old_len && a.new_len == b.new_len &&
         elapsed(a.time, b.time) <= kSamePoke &&
         (a.bytes == b.bytes || std::memcmp(a.bytes, b.bytes, size_t{a.old_len} + a.new_len) == 0);
}

// Leaves out what repeats its predecessor; where records were lost between them, they are two. `kept` is only
// filled when there is such a poke.
std::span<const uint32_t> without_repeats(AddrRange site, std::span<const uint32_t> members,
                                          SiteContext& context, std::vector<uint32_t>& kept) {
  kept.clear();
  bool any = false;
  for (size_t i = 1; i < members.size(); ++i) {
    const PokeRecord& before = context.pokes[any ? kept.back() : members[i - 1]];
    const PokeRecord& p = context.pokes[members[i]];
    const bool repeats = site.contains(p.addr) && same_poke(before, p) &&
                         (before.time == p.time || !context.lost.within(before.time, p.time));
    if (repeats && !any) kept.assign(members.begin(), members.begin() + static_cast<ptrdiff_t>(i));
    any = any || repeats;
    if (repeats) {
      if (context.dropped.empty()) context.dropped.resize(context.pokes.size());
      context.dropped[members[i]] = true;
      context.log.count(TextNotice::Kind::kDuplicatePoke, p.addr, p.time);
    } else if (any) {
      kept.push_back(members[i]);
    }
  }
  return any ? std::span<const uint32_t>(kept) : members;
}

// Of `lifetimes`, sorted, the backed ones that begin first after the first one's end.
std::span<const Lifetime> next_lifetimes(std::span<const Lifetime> lifetimes) {
  auto first = std::ranges::upper_bound(lifetimes, lifetimes[0].until, {}, &Lifetime::from);
  // At most one unbacked lifetime lies between backed ones.
  while (first != lifetimes.end() && !first->backed) ++first;
  auto last = first;
  while (last != lifetimes.end() && last->backed && last->from == first->from) ++last;
  return {first, last};
}

}  // namespace

// The state of layers at the end of the lifetimes that showed them, part by part: a layer shows again after a
// higher one ended, or continues beside another neighbour, with the pokes it had received.
class SiteVersions::Carried {
 public:
  void clear() { left_.clear(); }
  void keep(const Lifetime& lifetime, Time until, const PatchReplay::State& state) {
    for_each_part(lifetime, state.bytes.size(), [&](const Lifetime::Part& part) {
      std::vector<Left>& all = left_[{part.at, part.layer}];
      // Of those that ended before all lifetimes to come, the last one counts.
      Time last = kTimeMin;
      for (const Left& l : all) {
        if (l.until < lifetime.from) last = std::max(last, l.until);
      }
      std::erase_if(all, [&](const Left& l) { return l.until < last; });
      const auto cut = [&](const std::vector<uint8_t>& v) {
        return std::vector<uint8_t>(v.begin() + part.at, v.begin() + part.at + part.size);
      };
      all.push_back({until, {cut(state.bytes), cut(state.known)}});
    });
  }
  // The state in which `lifetime` begins, if any of its layers was there before.
  bool find(const Lifetime& lifetime, size_t size, PatchReplay::State& out) const {
    bool any = false;
    for_each_part(lifetime, size, [&](const Lifetime::Part& part) {
      const auto found = left_.find({part.at, part.layer});
      const Left* best = nullptr;
      if (found != left_.end()) {
        for (const Left& l : found->second) {
          if (l.until < lifetime.from && (best == nullptr || l.until >= best->until)) best = &l;
        }
      }
      if (best == nullptr) return;
      if (!any) start(lifetime, size, out);
      any = true;
      std::ranges::copy(best->state.bytes, out.bytes.begin() + part.at);
      std::ranges::copy(best->state.known, out.known.begin() + part.at);
    });
    return any;
  }

  template <class F>
  static void for_each_part(const Lifetime& lifetime, size_t size, F&& f) {
    if (lifetime.layer != nullptr) return f(Lifetime::Part{0, static_cast<uint32_t>(size), lifetime.layer});
    for (const Lifetime::Part& part : lifetime.parts) f(part);
  }

 private:
  struct Left {
    Time until;
    PatchReplay::State state;  // of the part
  };
  static void start(const Lifetime& lifetime, size_t size, PatchReplay::State& out) {
    out.bytes.assign(size, 0);
    out.known.assign(size, 0);
    for (size_t i = 0; i < size; ++i) {
      if (!lifetime.is_known(i)) continue;
      out.bytes[i] = lifetime.byte(i);
      out.known[i] = 1;
    }
  }

  std::map<std::pair<uint32_t, const Layer*>, std::vector<Left>> left_;
};

SiteVersions::SiteVersions(SiteContext context)
    : context_(context),
      replay_(std::make_unique<PatchReplay>(context_)),
      carried_(std::make_unique<Carried>()) {}

SiteVersions::~SiteVersions() = default;

void SiteVersions::make(AddrRange site, std::span<const uint32_t> members,
                        std::span<const Lifetime> lifetimes, std::vector<Version>& out) {
  TieContext ties{context_.pokes, context_.log, context_.limits.tie_steps};
  order_ties(site, members, lifetimes, ties);
  const std::span<const uint32_t> pokes = without_repeats(site, members, context_, kept_);
  replay_->begin_site(site, pokes);
  play_lifetimes(site, lifetimes, out);
  doubt_overlaps(pokes, lifetimes, out);

  const bool backed = std::ranges::any_of(lifetimes, &Lifetime::backed);
  if (!backed && !pokes.empty()) {
    const PokeRecord& first = context_.pokes[pokes[0]];
    context_.log.add(
        TextNotice::Kind::kPokeOutsideText, site.begin, first.time, context_.pokes[pokes.back()].time, [&] {
          return fmt::format("{} changes of {} bytes where no text is known", pokes.size(), site.size());
        });
  }
}

void SiteVersions::play_lifetimes(AddrRange site, std::span<const Lifetime> lifetimes,
                                  std::vector<Version>& out) {
  carried_->clear();
  consistent_.assign(lifetimes.size(), true);
  Time reached = kTimeMin;  // last instant of the backed lifetimes that began before this one
  PatchReplay::State left;
  Time begun = kTimeMin;  // the same, with those that began together with it
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    const Lifetime& lifetime = lifetimes[i];
    if (i != 0 && lifetimes[i - 1].from != lifetime.from) reached = begun;
    Time until = lifetime.until;
    if (lifetime.over_limit) {
      out.push_back({lifetime.from, lifetime.until, nullptr, lifetime.origin});
    } else {
      const bool again = carried_->find(lifetime, site.size(), left);
      until = replay_->run(lifetime, {reached, next_lifetimes(lifetimes.subspan(i)), again ? &left : nullptr},
                           out);
      consistent_[i] = replay_->consistent();
      if (lifetimes.size() > 1 && lifetime.backed && context_.limits.copied_bytes.take(site.size())) {
        carried_->keep(lifetime, until, replay_->final_state());
      }
      if (until < lifetime.until) play_successor(lifetimes, i, until + 1, out);
    }
    if (lifetime.backed) begun = std::max(begun, until);
  }
}

// Is a part of this lifetime known from a copy that contains later changes, while the copies of all parts
// have no common time, so that nothing was undone?
bool SiteVersions::copied_too_late(std::span<const uint32_t> pokes, const Lifetime& lifetime) const {
  if (lifetime.parts.empty() || lifetime.observed != kTimeMin) return false;
  const auto time = [&](uint32_t m) { return context_.pokes[m].time; };
  const auto first = std::ranges::upper_bound(pokes, lifetime.until, {}, time);
  return std::ranges::any_of(lifetime.parts, [&](const Lifetime::Part& part) {
    const Layer& l = *part.layer;
    if (l.bytes.empty()) return false;  // not a copy: there is nothing to undo in it
    return std::any_of(first, pokes.end(), [&](uint32_t m) {
      return time(m) <= l.observed && l.range.contains(poke_range(context_.pokes[m]));
    });
  });
}

// Where several programs are possible at one instant, a poke was made on one of them and no record shows
// which: unless it fits all of them, what any of them was before and after is not known.
void SiteVersions::doubt_overlaps(std::span<const uint32_t> pokes, std::span<const Lifetime> lifetimes,
                                  std::vector<Version>& out) {
  if (lifetimes.size() < 2 || pokes.empty()) return;
  const auto poked_in = [&](Time from, Time until) {
    const auto time = [&](uint32_t m) { return context_.pokes[m].time; };
    const auto first = std::ranges::lower_bound(pokes, from, {}, time);
    return first != pokes.end() && time(*first) <= until;
  };
  std::vector<size_t> open;  // lifetimes that reach the current one
  std::vector<bool> doubtful(lifetimes.size());
  // Last instant of the lifetimes so far that are unknown although pokes are in them.
  Time unknown_until = kTimeMin;
  bool any_unknown = false;
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    const Lifetime& lifetime = lifetimes[i];
    if (lifetime.over_limit && poked_in(lifetime.from, lifetime.until)) {
      unknown_until = std::max(unknown_until, lifetime.until);
      any_unknown = true;
    }
    if (!lifetime.epoch || lifetime.over_limit) continue;
    doubtful[i] = copied_too_late(pokes, lifetime);
    if (any_unknown) {
      Carried::for_each_part(lifetime, 0, [&](const Lifetime::Part& part) {
        doubtful[i] = doubtful[i] || part.layer->from <= unknown_until;
      });
    }
    std::erase_if(open, [&](size_t k) { return lifetimes[k].until < lifetime.from; });
    if (!context_.limits.roll_steps.take(open.size() + 1)) {
      context_.log.count(TextNotice::Kind::kTooComplex, context_.pokes[pokes[0]].addr, lifetime.from);
      doubtful.assign(lifetimes.size(), true);
      break;
    }
    for (const size_t k : open) {
      if (consistent_[i] && consistent_[k]) continue;
      if (!poked_in(lifetime.from, std::min(lifetime.until, lifetimes[k].until))) continue;
      doubtful[i] = doubtful[k] = true;
    }
    open.push_back(i);
  }
  // What was taken over from doubtful lifetimes is doubtful: the first end of one that showed a part.
  std::map<std::pair<uint32_t, const Layer*>, Time> ends;
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    if (!lifetimes[i].epoch || lifetimes[i].over_limit) continue;
    Carried::for_each_part(lifetimes[i], 0, [&](const Lifetime::Part& part) {
      const auto end = ends.find({part.at, part.layer});
      if (end != ends.end() && end->second < lifetimes[i].from) doubtful[i] = true;
    });
    if (!doubtful[i]) continue;
    Carried::for_each_part(lifetimes[i], 0, [&](const Lifetime::Part& part) {
      const auto [end, fresh] = ends.try_emplace({part.at, part.layer}, lifetimes[i].until);
      if (!fresh) end->second = std::min(end->second, lifetimes[i].until);
    });
  }
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    if (doubtful[i] && lifetimes[i].epoch)
      out.push_back({lifetimes[i].from, lifetimes[i].until, nullptr, lifetimes[i].origin});
  }
}

// From `from` on the pokes show that lifetimes[ended] is gone, though nothing is announced yet in its place.
void SiteVersions::play_successor(std::span<const Lifetime> lifetimes, size_t ended, Time from,
                                  std::vector<Version>& out) {
  if (!context_.limits.roll_steps.take(lifetimes.size())) return;
  Lifetime successor;
  successor.from = from;
  successor.until = lifetimes[ended].until;
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    const Lifetime& l = lifetimes[i];
    if (i == ended || !l.backed) continue;
    if (l.from <= from && l.until >= from) return;
    if (l.from > from) successor.until = std::min(successor.until, l.from - 1);
  }
  replay_->run(successor, {}, out);
}

}  // namespace asof
