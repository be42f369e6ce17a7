// PatchReplay where records were lost although the chain of a site is consistent (docs/live-text.md 2 and
// 8.4, rows L01 to L04): a key that was switched there and back inside the loss leaves no trace in the chain.
//
// What is sure of a site is what a record or a copy of memory showed of all its bytes. Between two such
// instants with a loss between them anything the site ever was can have been there; and anything else, unless
// the site is of a kind with two states only. One lost record alone cannot switch a site there and back.
#include <algorithm>
#include <cstring>

#include "textstore/patch_replay.h"

namespace asof {
// Whole contents the site has had in this lifetime, each with the origin of its first piece. Too many: `few`
// is false.
std::vector<PatchReplay::Piece> PatchReplay::distinct_states(bool& few) const {
  std::vector<Piece> states;
  few = true;
  for (const Piece& p : pieces_) {
    if (p.bytes == nullptr || p.until < p.from) continue;
    const auto same = [&](const Piece& s) {
      return s.bytes == p.bytes || std::memcmp(s.bytes, p.bytes, site_.size()) == 0;
    };
    if (std::ranges::any_of(states, same)) continue;
    if (states.size() == kMaxCandidates) {
      few = false;
      break;
    }
    states.push_back(p);
  }
  return states;
}

// A jump label: a no-op or one jump, whatever was lost. At other sites (calls, kprobes) there is always
// something more that could have been put there.
bool PatchReplay::has_two_states_only(std::span<const Piece> states) const {
  const auto kind_of = context_.rules.kind;
  if (kind_of == nullptr) return false;
  const uint8_t* jump = nullptr;
  for (const Piece& s : states) {
    const std::span<const uint8_t> bytes(s.bytes, site_.size());
    const PatchRules::Kind kind = kind_of(bytes);
    if (kind == PatchRules::Kind::kNoOp) continue;
    if (kind != PatchRules::Kind::kJump) return false;
    if (jump != nullptr && std::memcmp(jump, s.bytes, bytes.size()) != 0) return false;
    jump = s.bytes;
  }
  return !states.empty();
}

// Does the copy show the whole site at lifetime.observed: as the chain says, or as the candidate beside it?
bool PatchReplay::copy_shows(const Lifetime& lifetime) const {
  if (std::ranges::count(base_known_, 0) != 0) return false;
  if (copy_counts_) return true;
  for (const Piece& p : pieces_) {
    if (!p.main || p.bytes == nullptr || p.from > lifetime.observed || p.until < lifetime.observed) continue;
    return std::memcmp(p.bytes, base_.data(), base_.size()) == 0;
  }
  return false;
}

// Instants at which all bytes of the site were seen, in order of time.
void PatchReplay::find_sightings(const Lifetime& lifetime, bool carried, bool start_agrees) {
  sightings_.clear();
  const bool within = observed_within(lifetime);
  // A layer that does not say when it was read is as memory was before every change.
  Sighting start{.time = lifetime.from,
                 .after = start_agrees && !carried && lifetime.observed <= lifetime.from};
  if (carried)
    start.lost_after = kTimeMin;
  else if (lifetime.observed != kTimeMin && !std::ranges::count(base_known_, 0))
    start.lost_after = lifetime.observed;
  sightings_.push_back(start);
  bool copy = within && !carried && lifetime.observed > lifetime.from && copy_shows(lifetime);
  const auto add = [&](const Sighting& s) {
    if (copy && lifetime.observed < s.time) {
      sightings_.push_back({.time = lifetime.observed, .before = true, .after = true});
      copy = false;
    }
    sightings_.push_back(s);
  };
  for (size_t m = begin_; m < end_; ++m) {
    const PokeRecord& p = poke(m);
    const auto covers = [&](size_t length) { return range_of(p.addr, length).contains(site_); };
    const Sighting s{
        .time = p.time, .before = covers(p.old_len), .after = covers(p.new_len != 0 ? p.new_len : p.old_len)};
    if (s.before || s.after) add(s);
  }
  if (copy) sightings_.push_back({.time = lifetime.observed, .before = true, .after = true});
}

// `start_agrees`: what the layer says is what the first pokes found.
void PatchReplay::add_lost_states(const Lifetime& lifetime, Time until, bool carried, bool start_agrees) {
  if (context_.lost.empty() || begin_ == end_ || pieces_.empty()) return;
  find_sightings(lifetime, carried, start_agrees);
  bool few = true;
  std::vector<Piece> states = distinct_states(few);
  const bool closed = few && has_two_states_only(states);
  if (!closed) states.push_back({0, 0, nullptr, lifetime_origin_, false});
  for (size_t i = 0; i < sightings_.size(); ++i) {
    const Sighting& a = sightings_[i];
    const bool last = i + 1 == sightings_.size();
    const Sighting b = last ? Sighting{.time = saturating_add(until, 1)} : sightings_[i + 1];
    if (b.time <= a.time) continue;
    const auto lost = context_.lost.within(std::min(a.time, a.lost_after), b.time);
    // Where a ring may be missing, one of the changes that switched it there and back can be that CPU's.
    const bool all_rings = context_.all_rings;
    if (!lost || (all_rings && a.after && b.before && lost->count < 2)) continue;
    Time from = a.time, to = last ? until : b.time - 1;
    if (all_rings && a.after) from = std::max(from, LostIndex::behind(lost->after));
    if (all_rings && b.before) to = std::min(to, lost->until);
    if (from > to) continue;
    if (!few || !context_.limits.overlaps.take(states.size())) {
      pieces_.push_back({from, to, nullptr, lifetime_origin_, false, true});
      continue;
    }
    for (const Piece& s : states) pieces_.push_back({from, to, s.bytes, s.origin, false, true});
  }
}

}  // namespace asof
