// PatchReplay's comparison of the layer's own bytes with what the pokes say (docs/live-text.md 6; rows L02,
// L05, L06 of 8.4). The pokes are right; the copy can be evidence of a change that was lost.
#include <fmt/format.h>

#include <algorithm>

#include "textstore/patch_replay.h"

namespace asof {

bool PatchReplay::decided_bytes_equal(const uint8_t* bytes) const {
  for (size_t i = 0; i < decided_.size(); ++i) {
    if (decided_[i] != 0 && base_known_[i] != 0 && bytes[i] != base_[i]) return false;
  }
  return true;
}

// After emit(): compares the layer's bytes with the chain at the instant they were read, or at any instant if
// that is unknown. A copy that shows a later state was merely read later than it says.
void PatchReplay::watch_observation(const Lifetime& lifetime, Time until, bool initial) {
  if (seen_ == Seen::kAgrees) return;
  const bool dated = observed_within(lifetime);
  if (dated && until < lifetime.observed) return;
  if (decided_bytes_equal(value_.data())) {
    seen_ = Seen::kAgrees;
  } else if (dated && seen_ == Seen::kNotYet) {
    seen_ = Seen::kDiffers;
    consistent_ = false;  // even if it shows a later state
    observed_piece_ = pieces_.size() - 1;
    observed_until_ = until;
    observed_initial_ = initial;
  }
}

bool PatchReplay::observed_within(const Lifetime& lifetime) {
  return lifetime.observed != kTimeMin && lifetime.observed >= lifetime.from &&
         lifetime.observed <= lifetime.until;
}

bool PatchReplay::ends_as(const Lifetime& next) const {
  for (size_t i = 0; i < value_.size(); ++i) {
    if (decided_[i] != 0 && !(next.is_known(i) && next.byte(i) == value_[i])) return false;
  }
  return true;
}

void PatchReplay::judge_observation(const Lifetime& lifetime, std::span<const Lifetime> next) {
  if (!lifetime.backed || seen_ == Seen::kAgrees || begin_ == end_) return;
  if (observed_within(lifetime) && seen_ == Seen::kNotYet) return;  // the lifetime ended before
  if (shows_transient()) {
    context_.log.add(TextNotice::Kind::kTransientHealed, site_.begin, lifetime.from, poke(begin_).time, [&] {
      return fmt::format(
          "the snapshot shows {}, a breakpoint of an unfinished poke; the pokes say what was there",
          hex_bytes(base_));
    });
    return;
  }
  consistent_ = false;
  // The pokes were made on the content that comes next, before it was announced.
  if (std::ranges::any_of(next, [&](const Lifetime& l) { return ends_as(l); })) return;
  if (!observed_within(lifetime)) {
    report_mismatch(lifetime);
    return;
  }
  add_observed_candidate(lifetime);
}

void PatchReplay::add_observed_candidate(const Lifetime& lifetime) {
  Piece twin = pieces_[observed_piece_];
  const auto lost = observed_initial_
                        ? context_.lost.within(lifetime.observed, saturating_add(observed_until_, 1))
                        : context_.lost.within(twin.from, saturating_add(lifetime.observed, 1));
  if (!observed_initial_ && !lost) {
    // Without a loss an older state only means that the copy is older than it says.
    for (size_t k = 0; k < observed_piece_; ++k) {
      if (pieces_[k].main && pieces_[k].bytes != nullptr && decided_bytes_equal(pieces_[k].bytes)) return;
    }
  }
  report_mismatch(lifetime);
  const bool narrow = lost && context_.all_rings;
  twin.main = false;
  twin.origin = lifetime.origin;
  twin.until = observed_until_;
  if (narrow && observed_initial_) {
    twin.until = std::min(twin.until, std::max(lifetime.observed, lost->until));
  } else if (narrow) {
    twin.from = LostIndex::behind(std::max(twin.from, lost->after));
  }
  if (twin.bytes != nullptr) {
    overlay_.assign(twin.bytes, twin.bytes + site_.size());
    for (size_t i = 0; i < overlay_.size(); ++i) {
      if (decided_[i] != 0 && base_known_[i] != 0) overlay_[i] = base_[i];
    }
    twin.bytes = copy_of(overlay_);
  }
  pieces_.push_back(twin);
  copy_counts_ = true;
}

// A breakpoint with the tail of the old or of the new instruction: the copy was made while a poke was in
// progress.
bool PatchReplay::shows_transient() const {
  if (!context_.rules.breakpoint) return false;
  constexpr size_t kLooked = 64;
  for (size_t m = begin_; m < std::min(end_, begin_ + kLooked); ++m) {
    const PokeRecord& p = poke(m);
    if (p.old_len == 0 || p.old_len != p.new_len || !site_.contains(poke_range(p))) continue;
    const size_t at = p.addr - site_.begin;
    if (base_known_[at] == 0 || base_[at] != *context_.rules.breakpoint) continue;
    const auto tail_is = [&](std::span<const uint8_t> bytes) {
      return std::equal(bytes.begin() + 1, bytes.end(), base_.begin() + static_cast<ptrdiff_t>(at) + 1);
    };
    if (tail_is(p.old_bytes()) || tail_is(p.new_bytes())) return true;
  }
  return false;
}

void PatchReplay::report_mismatch(const Lifetime& lifetime) {
  const PokeRecord& p = poke(begin_);
  if (!context_.lost.within(lifetime.from, p.time)) contradicted(begin_);
  context_.log.add(TextNotice::Kind::kBaselineMismatch, site_.begin, lifetime.from, p.time, [&] {
    return fmt::format(
        "the copy of memory shows {}, which no recorded change left or found here (the first found {})",
        hex_bytes(base_), hex_bytes(p.old_bytes()));
  });
}

}  // namespace asof
