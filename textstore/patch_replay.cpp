#include "textstore/patch_replay.h"

#include <algorithm>
#include <cstring>

#include "textstore/version_list.h"

namespace asof {

size_t PatchReplay::first_at(Time t) const {
  const auto time = [&](uint32_t m) { return context_.pokes[m].time; };
  return static_cast<size_t>(std::ranges::lower_bound(members_, t, {}, time) - members_.begin());
}

size_t PatchReplay::first_after(Time t) const {
  const auto time = [&](uint32_t m) { return context_.pokes[m].time; };
  return static_cast<size_t>(std::ranges::upper_bound(members_, t, {}, time) - members_.begin());
}

void PatchReplay::begin_site(AddrRange site, std::span<const uint32_t> members) {
  site_ = site;
  members_ = members;
}

Time PatchReplay::run(const Lifetime& lifetime, const Surroundings& around, std::vector<Version>& out) {
  begin_ = first_at(lifetime.from);
  end_ = first_after(lifetime.until);
  backed_ = lifetime.backed;
  if (!lifetime.backed && begin_ == end_) return lifetime.until;
  load_base(lifetime, around.carried);
  if (lifetime.backed) roll_base(lifetime, around);
  const Time until = find_end(lifetime);
  load_initial(lifetime);
  const bool start_agrees =
      lifetime.backed && unknown_ == 0 && value_ == base_ && !std::ranges::count(base_known_, 0);
  pieces_.clear();
  unknown_piece_ = SIZE_MAX;
  play(lifetime, until);
  judge_observation(lifetime, around.next);
  add_lost_states(lifetime, until, around.carried != nullptr, start_agrees);
  for (const Piece& p : pieces_) {
    if (p.until < p.from || (p.bytes == nullptr && !lifetime.backed && !p.doubt)) continue;
    // Where there is no layer, only records say what was there at an instant, and not for how long.
    const bool unsure = p.bytes != nullptr && (lifetime.unsure || !lifetime.backed);
    add_version(out, {p.from, p.until, p.bytes, p.origin, unsure}, lifetime.sure_until);
  }
  return until;
}

// One poke outside the lifetime, on the base: only where it fits, else it was made on other content.
void PatchReplay::roll(const PokeRecord& p, std::span<const uint8_t> from, std::span<const uint8_t> to) {
  if (from.empty() || to.empty()) return;
  bool fits = true;
  for_each_byte(p, from, [&](uint32_t i, uint8_t b) { fits = fits && base_known_[i] != 0 && base_[i] == b; });
  if (!fits) return;
  for_each_byte(p, to, [&](uint32_t i, uint8_t b) { base_[i] = b; });
  whole_ = nullptr;
}

void PatchReplay::load_base(const Lifetime& lifetime, const State* carried) {
  const size_t size = site_.size();
  base_.assign(size, 0);
  base_known_.assign(size, 0);
  whole_ = lifetime.whole;
  lifetime_origin_ = lifetime.origin;
  for (size_t i = 0; i < size; ++i) {
    if (!lifetime.is_known(i)) continue;
    base_[i] = lifetime.byte(i);
    base_known_[i] = 1;
  }
  if (carried == nullptr) return;
  base_ = carried->bytes;
  base_known_ = carried->known;
}

void PatchReplay::roll_base(const Lifetime& lifetime, const Surroundings& around) {
  // A program's own pokes can come before it is announced (BPF tail calls); a hard end can precede the
  // observation.
  const size_t early =
      lifetime.from == kTimeMin ? begin_ : first_after(std::max(around.before, lifetime.observed));
  if (early < begin_ && context_.limits.roll_steps.take(begin_ - early)) {
    for (size_t m = early; m < begin_; ++m) roll(poke(m), poke(m).old_bytes(), poke(m).new_bytes());
  }
  if (lifetime.observed <= lifetime.until) return;
  const Time last =
      around.next.empty() ? lifetime.observed : std::min(lifetime.observed, around.next[0].from - 1);
  const size_t late = first_after(last);
  if (end_ < late && context_.limits.roll_steps.take(late - end_)) {
    for (size_t m = late; m-- > end_;) roll(poke(m), poke(m).new_bytes(), poke(m).old_bytes());
  }
}

void PatchReplay::load_initial(const Lifetime& lifetime) {
  const size_t size = site_.size();
  value_ = base_;
  known_ = base_known_;
  decided_.assign(size, 0);
  last_.assign(size, kNone);
  size_t open = size;  // bytes that no poke seen so far covers; last_ marks the others for now
  for (size_t m = begin_; m < end_ && open != 0; ++m) {
    const PokeRecord& p = poke(m);
    const bool decides = !after_announced_end(lifetime, p);
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
      // Installed before the layer was observed: its bytes are from later, what was before is unknown.
      const bool installed = site_.begin + i - p.addr >= p.old_len;
      if (installed && lifetime.observed >= p.time) known_[i] = 0;
    }
  }
  last_.assign(size, kNone);
  unknown_ = static_cast<size_t>(std::ranges::count(known_, 0));
}

void PatchReplay::apply(size_t member) {
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

const uint8_t* PatchReplay::copy_of(std::span<const uint8_t> bytes) {
  if (!context_.limits.copied_bytes.take(bytes.size())) {
    context_.log.count(TextNotice::Kind::kTooComplex, site_.begin, kTimeMin);
    return nullptr;
  }
  return context_.pool.intern(bytes);
}

// The present state, without a copy where a layer or a poke holds it as it is.
const uint8_t* PatchReplay::content(size_t next_member) {
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

// The state before `next_member`, which was written by the member before it.
void PatchReplay::emit(Time from, Time until, size_t next_member) {
  OriginRef origin = lifetime_origin_;
  if (next_member > begin_) {
    origin = kPokeBit | members_[next_member - 1];
  } else if (unknown_ == 0 && next_member < end_ &&
             !(std::ranges::count(base_known_, 0) == 0 && value_ == base_)) {
    origin = kPokeBit | kBeforeBit | members_[next_member];
  }
  pieces_.push_back({from, until, content(next_member), origin, true});
}

bool PatchReplay::after_announced_end(const Lifetime& lifetime, const PokeRecord& p) const {
  if (p.time <= lifetime.announced || lifetime.announced_byte.empty()) return p.time > lifetime.announced;
  const AddrRange r = site_.intersect(poke_range(p));
  const auto first = lifetime.announced_byte.begin() + static_cast<ptrdiff_t>(r.begin - site_.begin);
  return p.time > *std::min_element(first, first + static_cast<ptrdiff_t>(r.size()));
}

bool PatchReplay::fits(const PokeRecord& p) const {
  bool fits = p.old_len != 0;
  for_each_byte(p, p.old_bytes(),
                [&](uint32_t i, uint8_t old) { fits = fits && known_[i] != 0 && value_[i] == old; });
  return fits;
}

// Before the first poke after the announced end that does not fit what the pokes before it left.
Time PatchReplay::find_end(const Lifetime& lifetime) {
  if (end_ == begin_ || poke(end_ - 1).time <= lifetime.announced) return lifetime.until;
  value_ = base_;
  known_ = base_known_;
  last_.assign(site_.size(), kNone);
  for (size_t m = begin_; m < end_; ++m) {
    const PokeRecord& p = poke(m);
    if (after_announced_end(lifetime, p) && !fits(p)) {
      end_ = m;
      return p.time - 1;
    }
    apply(m);
  }
  return lifetime.until;
}

void PatchReplay::play(const Lifetime& lifetime, Time until) {
  seen_ = Seen::kNotYet;
  copy_counts_ = false;
  consistent_ = true;
  Time from = lifetime.from;
  for (size_t m = begin_; m < end_; ++m) {
    const Time now = poke(m).time;
    if (now > from) {
      emit(from, now - 1, m);
      watch_observation(lifetime, now - 1, m == begin_);
    }
    if (find_mismatch(poke(m))) {
      consistent_ = false;
      handle_break(m);
    }
    apply(m);
    from = now;
  }
  emit(from, until, end_);
  watch_observation(lifetime, until, begin_ == end_);
}

}  // namespace asof
