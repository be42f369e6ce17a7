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
         b.time - a.time <= kSamePoke &&
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

// Of `lives`, sorted, the claimed ones that begin first after the first one's end.
std::span<const Life> next_lives(std::span<const Life> lives) {
  auto first = std::ranges::upper_bound(lives, lives[0].until, {}, &Life::from);
  // At most one unclaimed life lies between claimed ones.
  while (first != lives.end() && !first->claimed) ++first;
  auto last = first;
  while (last != lives.end() && last->claimed && last->from == first->from) ++last;
  return {first, last};
}

}  // namespace

// How layers were left at the end of the lives that showed them, part by part: a layer comes to light again
// after a higher one ended, or goes on beside another neighbour, with the pokes it had got.
class SiteVersions::Carried {
 public:
  void clear() { left_.clear(); }
  void keep(const Life& life, Time until, const LifeChain::State& state) {
    for_each_part(life, state.bytes.size(), [&](const Life::Part& part) {
      std::vector<Left>& all = left_[{part.at, part.layer}];
      // Of those that ended before all lives to come, the last one counts.
      Time last = kTimeMin;
      for (const Left& l : all) {
        if (l.until < life.from) last = std::max(last, l.until);
      }
      std::erase_if(all, [&](const Left& l) { return l.until < last; });
      const auto cut = [&](const std::vector<uint8_t>& v) {
        return std::vector<uint8_t>(v.begin() + part.at, v.begin() + part.at + part.size);
      };
      all.push_back({until, {cut(state.bytes), cut(state.known)}});
    });
  }
  // The state in which `life` begins, if any of its layers was there before.
  bool find(const Life& life, size_t size, LifeChain::State& out) const {
    bool any = false;
    for_each_part(life, size, [&](const Life::Part& part) {
      const auto found = left_.find({part.at, part.layer});
      const Left* best = nullptr;
      if (found != left_.end()) {
        for (const Left& l : found->second) {
          if (l.until < life.from && (best == nullptr || l.until >= best->until)) best = &l;
        }
      }
      if (best == nullptr) return;
      if (!any) start(life, size, out);
      any = true;
      std::ranges::copy(best->state.bytes, out.bytes.begin() + part.at);
      std::ranges::copy(best->state.known, out.known.begin() + part.at);
    });
    return any;
  }

  template <class F>
  static void for_each_part(const Life& life, size_t size, F&& f) {
    if (life.layer != nullptr) return f(Life::Part{0, static_cast<uint32_t>(size), life.layer});
    for (const Life::Part& part : life.parts) f(part);
  }

 private:
  struct Left {
    Time until;
    LifeChain::State state;  // of the part
  };
  static void start(const Life& life, size_t size, LifeChain::State& out) {
    out.bytes.assign(size, 0);
    out.known.assign(size, 0);
    for (size_t i = 0; i < size; ++i) {
      if (!life.is_known(i)) continue;
      out.bytes[i] = life.byte(i);
      out.known[i] = 1;
    }
  }

  std::map<std::pair<uint32_t, const Layer*>, std::vector<Left>> left_;
};

SiteVersions::SiteVersions(SiteContext context)
    : context_(context),
      chain_(std::make_unique<LifeChain>(context_)),
      carried_(std::make_unique<Carried>()) {}

SiteVersions::~SiteVersions() = default;

void SiteVersions::make(AddrRange site, std::span<const uint32_t> members, std::span<const Life> lives,
                        std::vector<Version>& out) {
  TieContext ties{context_.pokes, context_.log, context_.limits.tie_steps};
  order_ties(site, members, lives, ties);
  const std::span<const uint32_t> pokes = without_repeats(site, members, context_, kept_);
  chain_->begin_site(site, pokes);
  play_lives(site, lives, out);
  doubt_overlaps(pokes, lives, out);

  const bool claimed = std::ranges::any_of(lives, &Life::claimed);
  if (!claimed && !pokes.empty()) {
    const PokeRecord& first = context_.pokes[pokes[0]];
    context_.log.add(
        TextNotice::Kind::kPokeOutsideText, site.begin, first.time, context_.pokes[pokes.back()].time, [&] {
          return fmt::format("{} changes of {} bytes where no text is known", pokes.size(), site.size());
        });
  }
}

void SiteVersions::play_lives(AddrRange site, std::span<const Life> lives, std::vector<Version>& out) {
  carried_->clear();
  consistent_.assign(lives.size(), true);
  Time reached = kTimeMin;  // last instant of the claimed lives that began before this one
  LifeChain::State left;
  Time begun = kTimeMin;  // the same, with those that began together with it
  for (size_t i = 0; i < lives.size(); ++i) {
    const Life& life = lives[i];
    if (i != 0 && lives[i - 1].from != life.from) reached = begun;
    Time until = life.until;
    if (life.crowded) {
      out.push_back({life.from, life.until, nullptr, life.origin});
    } else {
      const bool again = carried_->find(life, site.size(), left);
      until = chain_->run(life, {reached, next_lives(lives.subspan(i)), again ? &left : nullptr}, out);
      consistent_[i] = chain_->consistent();
      if (lives.size() > 1 && life.claimed && context_.limits.copied_bytes.take(site.size())) {
        carried_->keep(life, until, chain_->final_state());
      }
      if (until < life.until) play_successor(lives, i, until + 1, out);
    }
    if (life.claimed) begun = std::max(begun, until);
  }
}

// Is a part of this life known from a copy that has changes made after it, though of no one time for all
// parts, so that nothing was undone?
bool SiteVersions::copied_too_late(std::span<const uint32_t> pokes, const Life& life) const {
  if (life.parts.empty() || life.observed != kTimeMin) return false;
  const auto time = [&](uint32_t m) { return context_.pokes[m].time; };
  const auto first = std::ranges::upper_bound(pokes, life.until, {}, time);
  return std::ranges::any_of(life.parts, [&](const Life::Part& part) {
    const Layer& l = *part.layer;
    return std::any_of(first, pokes.end(), [&](uint32_t m) {
      return time(m) <= l.observed && l.range.contains(poke_range(context_.pokes[m]));
    });
  });
}

// Where several programs can be there at one instant, a poke was made on one of them and nobody says on
// which: unless it fits all of them, what any of them was before and after is not known.
void SiteVersions::doubt_overlaps(std::span<const uint32_t> pokes, std::span<const Life> lives,
                                  std::vector<Version>& out) {
  if (lives.size() < 2 || pokes.empty()) return;
  const auto poked_in = [&](Time from, Time until) {
    const auto time = [&](uint32_t m) { return context_.pokes[m].time; };
    const auto first = std::ranges::lower_bound(pokes, from, {}, time);
    return first != pokes.end() && time(*first) <= until;
  };
  std::vector<size_t> open;  // lives that reach the one at hand
  std::vector<bool> doubtful(lives.size());
  // Last instant of the lives so far that are unknown although pokes are in them.
  Time swallowed = kTimeMin;
  bool any_swallowed = false;
  for (size_t i = 0; i < lives.size(); ++i) {
    const Life& life = lives[i];
    if (life.crowded && poked_in(life.from, life.until)) {
      swallowed = std::max(swallowed, life.until);
      any_swallowed = true;
    }
    if (!life.epoch || life.crowded) continue;
    doubtful[i] = copied_too_late(pokes, life);
    if (any_swallowed) {
      Carried::for_each_part(life, 0, [&](const Life::Part& part) {
        doubtful[i] = doubtful[i] || part.layer->from <= swallowed;
      });
    }
    std::erase_if(open, [&](size_t k) { return lives[k].until < life.from; });
    if (!context_.limits.roll_steps.take(open.size() + 1)) {
      context_.log.count(TextNotice::Kind::kTooComplex, context_.pokes[pokes[0]].addr, life.from);
      doubtful.assign(lives.size(), true);
      break;
    }
    for (const size_t k : open) {
      if (consistent_[i] && consistent_[k]) continue;
      if (!poked_in(life.from, std::min(life.until, lives[k].until))) continue;
      doubtful[i] = doubtful[k] = true;
    }
    open.push_back(i);
  }
  // What was taken over from doubtful lives is doubtful.
  std::map<std::pair<uint32_t, const Layer*>, Time> ends;  // the first end of a doubtful life that showed it
  for (size_t i = 0; i < lives.size(); ++i) {
    if (!lives[i].epoch || lives[i].crowded) continue;
    Carried::for_each_part(lives[i], 0, [&](const Life::Part& part) {
      const auto end = ends.find({part.at, part.layer});
      if (end != ends.end() && end->second < lives[i].from) doubtful[i] = true;
    });
    if (!doubtful[i]) continue;
    Carried::for_each_part(lives[i], 0, [&](const Life::Part& part) {
      const auto [end, fresh] = ends.try_emplace({part.at, part.layer}, lives[i].until);
      if (!fresh) end->second = std::min(end->second, lives[i].until);
    });
  }
  for (size_t i = 0; i < lives.size(); ++i) {
    if (doubtful[i] && lives[i].epoch)
      out.push_back({lives[i].from, lives[i].until, nullptr, lives[i].origin});
  }
}

// From `from` on the pokes show that lives[ended] is gone, though nothing is announced yet in its place.
void SiteVersions::play_successor(std::span<const Life> lives, size_t ended, Time from,
                                  std::vector<Version>& out) {
  if (!context_.limits.roll_steps.take(lives.size())) return;
  Life successor;
  successor.from = from;
  successor.until = lives[ended].until;
  for (size_t i = 0; i < lives.size(); ++i) {
    const Life& l = lives[i];
    if (i == ended || !l.claimed) continue;
    if (l.from <= from && l.until >= from) return;
    if (l.from > from) successor.until = std::min(successor.until, l.from - 1);
  }
  chain_->run(successor, {}, out);
}

}  // namespace asof
