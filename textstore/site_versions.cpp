#include "textstore/site_versions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "textstore/life_chain.h"
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

// Leaves out what repeats its predecessor. `kept` is only filled when there is such a poke.
std::span<const uint32_t> without_repeats(AddrRange site, std::span<const uint32_t> members,
                                          SiteContext& context, std::vector<uint32_t>& kept) {
  kept.clear();
  bool any = false;
  for (size_t i = 1; i < members.size(); ++i) {
    const PokeRecord& before = context.pokes[any ? kept.back() : members[i - 1]];
    const PokeRecord& p = context.pokes[members[i]];
    const bool repeats = site.contains(p.addr) && same_poke(before, p);
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

struct SiteVersions::Carried : std::map<const void*, LifeChain::State> {};

SiteVersions::SiteVersions(SiteContext context)
    : context_(std::move(context)),
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
  Time reached = kTimeMin;  // last instant of the claimed lives that began before this one
  Time begun = kTimeMin;    // the same, with those that began together with it
  for (size_t i = 0; i < lives.size(); ++i) {
    const Life& life = lives[i];
    if (i != 0 && lives[i - 1].from != life.from) reached = begun;
    Time until = life.until;
    if (life.crowded) {
      out.push_back({life.from, life.until, nullptr, life.origin});
    } else {
      const auto carried = carried_->find(life.identity);
      const LifeChain::State* left = carried == carried_->end() ? nullptr : &carried->second;
      until = chain_->run(life, {reached, next_lives(lives.subspan(i)), left}, out);
      // A layer can come to light again after a higher one ended: with the pokes it had got before.
      if (lives.size() > 2 && life.claimed && context_.limits.copied_bytes.take(site.size())) {
        (*carried_)[life.identity] = chain_->final_state();
      }
      if (until < life.until) play_successor(lives, i, until + 1, out);
    }
    if (life.claimed) begun = std::max(begun, until);
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
