#include "textstore/life_chain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

namespace asof {

std::string hex_bytes(std::span<const uint8_t> bytes) {
  constexpr size_t kShown = 16;
  const auto shown = bytes.first(std::min(bytes.size(), kShown));
  return fmt::format("{:02x}{}", fmt::join(shown, " "), bytes.size() > kShown ? " .." : "");
}

template <class F>
void LifeChain::for_each_byte(const PokeRecord& p, std::span<const uint8_t> bytes, F&& f) const {
  const AddrRange r = site_.intersect(range_of(p.addr, bytes.size()));
  for (Addr a = r.begin; a < r.end; ++a) f(static_cast<uint32_t>(a - site_.begin), bytes[a - p.addr]);
}

size_t LifeChain::first_at(Time t) const {
  const auto time = [&](uint32_t m) { return context_.pokes[m].time; };
  return static_cast<size_t>(std::ranges::lower_bound(members_, t, {}, time) - members_.begin());
}

size_t LifeChain::first_after(Time t) const {
  const auto time = [&](uint32_t m) { return context_.pokes[m].time; };
  return static_cast<size_t>(std::ranges::upper_bound(members_, t, {}, time) - members_.begin());
}

void LifeChain::begin_site(AddrRange site, std::span<const uint32_t> members) {
  site_ = site;
  members_ = members;
}

Time LifeChain::run(const Life& life, const Surroundings& around, std::vector<Version>& out) {
  begin_ = first_at(life.from);
  end_ = first_after(life.until);
  if (!life.claimed && begin_ == end_) return life.until;
  load_base(life, around.carried);
  if (life.claimed) roll_base(life, around);
  const Time until = find_end(life);
  load_initial(life);
  pieces_.clear();
  unknown_piece_ = SIZE_MAX;
  play(life, until);
  judge_observation(life, around.next);
  for (const Piece& p : pieces_) {
    if (p.until >= p.from && (p.bytes != nullptr || life.claimed)) {
      out.push_back({p.from, p.until, p.bytes, p.origin});
    }
  }
  return until;
}

// One poke outside the life, on the base: only where it fits, else it was another content's.
void LifeChain::roll(const PokeRecord& p, std::span<const uint8_t> from, std::span<const uint8_t> to) {
  if (from.empty() || to.empty()) return;
  bool fits = true;
  for_each_byte(p, from, [&](uint32_t i, uint8_t b) { fits = fits && base_known_[i] != 0 && base_[i] == b; });
  if (!fits) return;
  for_each_byte(p, to, [&](uint32_t i, uint8_t b) { base_[i] = b; });
  whole_ = nullptr;
}

void LifeChain::load_base(const Life& life, const State* carried) {
  const size_t size = site_.size();
  base_.assign(size, 0);
  base_known_.assign(size, 0);
  whole_ = life.whole;
  life_origin_ = life.origin;
  for (size_t i = 0; i < size; ++i) {
    if (!life.is_known(i)) continue;
    base_[i] = life.byte(i);
    base_known_[i] = 1;
  }
  if (carried == nullptr) return;
  base_ = carried->bytes;
  base_known_ = carried->known;
}

void LifeChain::roll_base(const Life& life, const Surroundings& around) {
  // A program's own pokes can come before it is announced (BPF tail calls); a hard end can precede the
  // observation.
  const size_t early = life.from == kTimeMin ? begin_ : first_after(std::max(around.before, life.observed));
  if (early < begin_ && context_.limits.roll_steps.take(begin_ - early)) {
    for (size_t m = early; m < begin_; ++m) roll(poke(m), poke(m).old_bytes(), poke(m).new_bytes());
  }
  if (life.observed <= life.until) return;
  const Time last = around.next.empty() ? life.observed : std::min(life.observed, around.next[0].from - 1);
  const size_t late = first_after(last);
  if (end_ < late && context_.limits.roll_steps.take(late - end_)) {
    for (size_t m = late; m-- > end_;) roll(poke(m), poke(m).new_bytes(), poke(m).old_bytes());
  }
}

void LifeChain::load_initial(const Life& life) {
  const size_t size = site_.size();
  value_ = base_;
  known_ = base_known_;
  decided_.assign(size, 0);
  last_.assign(size, kNone);
  size_t open = size;  // bytes that no poke seen so far covers; last_ marks the others for now
  for (size_t m = begin_; m < end_ && open != 0; ++m) {
    const PokeRecord& p = poke(m);
    const bool decides = !after_announced_end(life, p);
    for_each_byte(p, p.old_bytes(), [&](uint32_t i, uint8_t old) {
      if (!decides || last_[i] != kNone) return;
      value_[i] = old;
      known_[i] = decided_[i] = 1;
    });
    const AddrRange r = site_.intersect(poke_range(p));
    for (size_t i = r.begin - site_.begin; i < r.end - site_.begin; ++i) {
      if (last_[i] != kNone) continue;
      last_[i] = 0;
      --open;
      // Installed before the layer was observed: its bytes are those of later, what was before is unknown.
      const bool installed = site_.begin + i - p.addr >= p.old_len;
      if (installed && life.observed >= p.time) known_[i] = 0;
    }
  }
  last_.assign(size, kNone);
  unknown_ = static_cast<size_t>(std::ranges::count(known_, 0));
}

void LifeChain::apply(size_t member) {
  const PokeRecord& p = poke(member);
  // A removal leaves the bytes: code may still run until something else is put there.
  for_each_byte(p, p.new_len != 0 ? p.new_bytes() : p.old_bytes(), [&](uint32_t i, uint8_t b) {
    value_[i] = b;
    if (known_[i] == 0) --unknown_;
    known_[i] = 1;
  });
  const AddrRange r = site_.intersect(poke_range(p));
  for (Addr a = r.begin; a < r.end; ++a) last_[a - site_.begin] = static_cast<uint32_t>(member);
}

const uint8_t* LifeChain::copy_of(std::span<const uint8_t> bytes) {
  if (!context_.limits.copied_bytes.take(bytes.size())) {
    context_.log.count(TextNotice::Kind::kTooComplex, site_.begin, kTimeMin);
    return nullptr;
  }
  return context_.pool.intern(bytes);
}

// The present state, without a copy where a layer or a poke holds it as it is.
const uint8_t* LifeChain::content(size_t next_member) {
  if (unknown_ != 0) return nullptr;
  const auto inside = [&](const PokeRecord& p, std::span<const uint8_t> bytes) -> const uint8_t* {
    return range_of(p.addr, bytes.size()).contains(site_) ? bytes.data() + (site_.begin - p.addr) : nullptr;
  };
  const uint8_t* at = nullptr;
  if (next_member > begin_) {
    const PokeRecord& p = poke(next_member - 1);
    at = inside(p, p.new_len != 0 ? p.new_bytes() : p.old_bytes());
  } else if (whole_ != nullptr && std::memcmp(whole_, value_.data(), value_.size()) == 0) {
    at = whole_;
  } else if (next_member < end_) {
    at = inside(poke(next_member), poke(next_member).old_bytes());
  }
  return at != nullptr ? at : copy_of(value_);
}

// The state before `next_member`, which was written by the member in front of it.
void LifeChain::emit(Time from, Time until, size_t next_member) {
  OriginRef origin = life_origin_;
  if (next_member > begin_) {
    origin = kPokeBit | members_[next_member - 1];
  } else if (unknown_ == 0 && next_member < end_ &&
             !(std::ranges::count(base_known_, 0) == 0 && value_ == base_)) {
    origin = kPokeBit | members_[next_member];
  }
  pieces_.push_back({from, until, content(next_member), origin, true});
}

bool LifeChain::after_announced_end(const Life& life, const PokeRecord& p) const {
  if (p.time <= life.announced || life.announced_byte.empty()) return p.time > life.announced;
  const AddrRange r = site_.intersect(poke_range(p));
  const auto first = life.announced_byte.begin() + static_cast<ptrdiff_t>(r.begin - site_.begin);
  return p.time > *std::min_element(first, first + static_cast<ptrdiff_t>(r.size()));
}

bool LifeChain::fits(const PokeRecord& p) const {
  bool fits = p.old_len != 0;
  for_each_byte(p, p.old_bytes(),
                [&](uint32_t i, uint8_t old) { fits = fits && known_[i] != 0 && value_[i] == old; });
  return fits;
}

// Before the first poke after the announced end that does not fit what the pokes before it left.
Time LifeChain::find_end(const Life& life) {
  if (end_ == begin_ || poke(end_ - 1).time <= life.announced) return life.until;
  value_ = base_;
  known_ = base_known_;
  last_.assign(site_.size(), kNone);
  for (size_t m = begin_; m < end_; ++m) {
    const PokeRecord& p = poke(m);
    if (after_announced_end(life, p) && !fits(p)) {
      end_ = m;
      return p.time - 1;
    }
    apply(m);
  }
  return life.until;
}

void LifeChain::play(const Life& life, Time until) {
  seen_ = Seen::kNotYet;
  Time from = life.from;
  for (size_t m = begin_; m < end_; ++m) {
    const Time now = poke(m).time;
    if (now > from) {
      emit(from, now - 1, m);
      watch_observation(life, now - 1, m == begin_);
    }
    if (find_mismatch(poke(m))) handle_break(m);
    apply(m);
    from = now;
  }
  emit(from, until, end_);
  watch_observation(life, until, begin_ == end_);
}

bool LifeChain::find_mismatch(const PokeRecord& p) {
  mismatch_.clear();
  for_each_byte(p, p.old_bytes(), [&](uint32_t i, uint8_t old) {
    if (known_[i] != 0 && value_[i] != old) mismatch_.push_back(i);
  });
  return !mismatch_.empty();
}

// Bytes of mismatch_ that the same poke wrote were changed unseen after it: one group each.
void LifeChain::handle_break(size_t member) {
  const Time now = poke(member).time;
  groups_.clear();
  for (uint32_t i : mismatch_) {
    if (last_[i] != kNone && std::ranges::find(groups_, last_[i]) == groups_.end())
      groups_.push_back(last_[i]);
    if (groups_.size() > kMaxCandidates) break;
  }
  for (uint32_t group : groups_) {
    const PokeRecord& before = poke(group);
    // After a removal the place was free for anything.
    if (before.new_len != 0) report_break(member, group);
    if (before.time >= now) continue;
    Time first = before.time + 1, last_old = now - 1;
    if (groups_.size() > kMaxCandidates) {
      add_unknown(poke(begin_).time, last_old);
      return;
    }
    if (const auto lost = context_.lost.within(before.time, now)) {
      first = std::max(first, saturating_add(lost->after, 1));
      last_old = std::min(last_old, lost->until);
    }
    add_candidates(first, last_old, now - 1, member, group);
  }
}

// In [first, last] every piece gets a twin with the member's old bytes in `group`; the piece itself ends at
// last_old.
void LifeChain::add_candidates(Time first, Time last_old, Time last, size_t member, uint32_t group) {
  // What is behind the main piece that holds `first` ended before it.
  size_t oldest = pieces_.size(), touched = 0;
  while (oldest > 0 && touched <= kMaxCandidates) {
    const Piece& piece = pieces_[--oldest];
    if (piece.until >= first && piece.from <= last) ++touched;
    if (piece.main && piece.from <= first) break;
  }
  if (touched > kMaxCandidates) {
    add_unknown(first, last);
    return;
  }
  const PokeRecord& p = poke(member);
  for (size_t k = oldest, count = pieces_.size(); k < count; ++k) {
    if (pieces_[k].until < first || pieces_[k].from > last || pieces_[k].until < pieces_[k].from) continue;
    Piece twin = pieces_[k];
    twin.main = false;
    twin.from = std::max(twin.from, first);
    twin.origin = kPokeBit | members_[member];
    pieces_[k].until = std::min(twin.until, last_old);
    if (twin.bytes != nullptr) {
      overlay_.assign(twin.bytes, twin.bytes + site_.size());
      for (uint32_t i : mismatch_) {
        if (last_[i] == group) overlay_[i] = p.old_bytes()[site_.begin + i - p.addr];
      }
      twin.bytes = copy_of(overlay_);
    }
    pieces_.push_back(twin);
  }
}

void LifeChain::add_unknown(Time from, Time until) {
  if (unknown_piece_ != SIZE_MAX && saturating_add(pieces_[unknown_piece_].until, 1) >= from) {
    Piece& piece = pieces_[unknown_piece_];
    piece.from = std::min(piece.from, from);
    piece.until = std::max(piece.until, until);
    return;
  }
  unknown_piece_ = pieces_.size();
  pieces_.push_back({from, until, nullptr, life_origin_, false});
}

void LifeChain::report_break(size_t member, uint32_t group) const {
  const PokeRecord& p = poke(member);
  const PokeRecord& before = poke(group);
  context_.log.add(TextNotice::Kind::kChainBreak, p.addr, before.time, p.time, [&] {
    const AddrRange r = site_.intersect(range_of(p.addr, p.old_len));
    const std::span<const uint8_t> left(value_.data() + (r.begin - site_.begin), r.size());
    return fmt::format("the change before left {}, this one found {}: a change in between is missing",
                       hex_bytes(left), hex_bytes(p.old_bytes().subspan(r.begin - p.addr, r.size())));
  });
}

bool LifeChain::decided_bytes_equal(const uint8_t* bytes) const {
  for (size_t i = 0; i < decided_.size(); ++i) {
    if (decided_[i] != 0 && base_known_[i] != 0 && bytes[i] != base_[i]) return false;
  }
  return true;
}

// After emit(): compares the layer's bytes with the chain at the instant they were read, or, that unknown, at
// any. A copy that shows a later state was merely read later than it says.
void LifeChain::watch_observation(const Life& life, Time until, bool initial) {
  if (seen_ == Seen::kAgrees) return;
  const bool dated = observed_within(life);
  if (dated && until < life.observed) return;
  if (decided_bytes_equal(value_.data())) {
    seen_ = Seen::kAgrees;
  } else if (dated && seen_ == Seen::kNotYet) {
    seen_ = Seen::kDiffers;
    observed_piece_ = pieces_.size() - 1;
    observed_until_ = until;
    observed_initial_ = initial;
  }
}

bool LifeChain::observed_within(const Life& life) {
  return life.observed != kTimeMin && life.observed >= life.from && life.observed <= life.until;
}

bool LifeChain::ends_as(const Life& next) const {
  for (size_t i = 0; i < value_.size(); ++i) {
    if (decided_[i] != 0 && !(next.is_known(i) && next.byte(i) == value_[i])) return false;
  }
  return true;
}

void LifeChain::judge_observation(const Life& life, std::span<const Life> next) {
  if (!life.claimed || seen_ == Seen::kAgrees || begin_ == end_) return;
  if (observed_within(life) && seen_ == Seen::kNotYet) return;  // the life ended before
  if (shows_transient()) {
    context_.log.add(TextNotice::Kind::kTransientHealed, site_.begin, life.from, poke(begin_).time, [&] {
      return fmt::format(
          "the snapshot shows {}, a breakpoint of an unfinished poke; the pokes say what was there",
          hex_bytes(base_));
    });
    return;
  }
  // The pokes were made on the content that comes next, before it was announced.
  if (std::ranges::any_of(next, [&](const Life& l) { return ends_as(l); })) return;
  if (!observed_within(life)) {
    report_mismatch(life);
    return;
  }
  add_observed_candidate(life);
}

void LifeChain::add_observed_candidate(const Life& life) {
  Piece twin = pieces_[observed_piece_];
  const auto lost = observed_initial_
                        ? context_.lost.within(life.observed, saturating_add(observed_until_, 1))
                        : context_.lost.within(twin.from, saturating_add(life.observed, 1));
  if (!observed_initial_ && !lost) {
    // Without a loss an older state only means that the copy is older than it says.
    for (size_t k = 0; k < observed_piece_; ++k) {
      if (pieces_[k].bytes != nullptr && decided_bytes_equal(pieces_[k].bytes)) return;
    }
  }
  report_mismatch(life);
  if (!observed_initial_ && !lost) return;
  twin.main = false;
  twin.origin = life.origin;
  twin.until = observed_until_;
  if (observed_initial_) {
    twin.until = std::min(twin.until, lost ? std::max(life.observed, lost->until) : life.observed);
  } else {
    twin.from = std::max(twin.from, lost->after) + 1;
  }
  if (twin.bytes != nullptr) {
    overlay_.assign(twin.bytes, twin.bytes + site_.size());
    for (size_t i = 0; i < overlay_.size(); ++i) {
      if (decided_[i] != 0 && base_known_[i] != 0) overlay_[i] = base_[i];
    }
    twin.bytes = copy_of(overlay_);
  }
  pieces_.push_back(twin);
}

// INT3 with the tail of the old or of the new instruction: the copy was made while a poke was under way.
bool LifeChain::shows_transient() const {
  constexpr uint8_t kInt3 = 0xcc;
  constexpr size_t kLooked = 64;
  for (size_t m = begin_; m < std::min(end_, begin_ + kLooked); ++m) {
    const PokeRecord& p = poke(m);
    if (p.old_len == 0 || p.old_len != p.new_len || !site_.contains(poke_range(p))) continue;
    const size_t at = p.addr - site_.begin;
    if (base_known_[at] == 0 || base_[at] != kInt3) continue;
    const auto tail_is = [&](std::span<const uint8_t> bytes) {
      return std::equal(bytes.begin() + 1, bytes.end(), base_.begin() + static_cast<ptrdiff_t>(at) + 1);
    };
    if (tail_is(p.old_bytes()) || tail_is(p.new_bytes())) return true;
  }
  return false;
}

void LifeChain::report_mismatch(const Life& life) const {
  const PokeRecord& p = poke(begin_);
  context_.log.add(TextNotice::Kind::kBaselineMismatch, site_.begin, life.from, p.time, [&] {
    return fmt::format(
        "the copy of memory shows {}, which no recorded change left or found here (the first found {})",
        hex_bytes(base_), hex_bytes(p.old_bytes()));
  });
}

}  // namespace asof
