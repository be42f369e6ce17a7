// PatchReplay where a poke does not find what the one before left (docs/live-text.md 7.2, P9).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "textstore/patch_replay.h"

namespace asof {
namespace {

// A break makes a twin of every piece in its interval; one over more pieces makes the interval unknown.
constexpr size_t kMaxTwins = 4 * kMaxCandidates;

}  // namespace

std::string hex_bytes(std::span<const uint8_t> bytes) {
  constexpr size_t kShown = 16;
  const auto shown = bytes.first(std::min(bytes.size(), kShown));
  return fmt::format("{:02x}{}", fmt::join(shown, " "), bytes.size() > kShown ? " .." : "");
}

bool PatchReplay::find_mismatch(const PokeRecord& p) {
  mismatch_.clear();
  for_each_byte(p, p.old_bytes(), [&](uint32_t i, uint8_t old) {
    if (known_[i] != 0 && value_[i] != old) mismatch_.push_back(i);
  });
  return !mismatch_.empty();
}

// Bytes of mismatch_ that the same poke wrote were changed unseen after it: one group each.
void PatchReplay::handle_break(size_t member) {
  const Time now = poke(member).time;
  groups_.clear();
  for (uint32_t i : mismatch_) {
    if (last_[i] != kNone && std::ranges::find(groups_, last_[i]) == groups_.end())
      groups_.push_back(last_[i]);
    if (groups_.size() > kMaxCandidates) break;
  }
  for (uint32_t group : groups_) {
    const PokeRecord& before = poke(group);
    // After a removal the memory was free for anything.
    if (before.new_len != 0) report_break(member, group);
    if (before.time >= now) continue;
    Time first = LostIndex::behind(before.time), last_old = now - 1;
    if (groups_.size() > kMaxCandidates) {
      add_unknown(poke(begin_).time, last_old);
      return;
    }
    const auto lost = context_.lost.within(before.time, now);
    if (!lost) contradicted(member);
    if (lost && context_.all_rings) {
      first = std::max(first, LostIndex::behind(lost->after));
      last_old = std::min(last_old, lost->until);
    }
    add_candidates(first, last_old, now - 1, member, group);
  }
}

// In [first, last] every piece gets a twin with the member's old bytes in `group`; the piece itself ends at
// last_old.
void PatchReplay::add_candidates(Time first, Time last_old, Time last, size_t member, uint32_t group) {
  // What comes after the main piece that holds `first` ended before it.
  size_t oldest = pieces_.size(), touched = 0;
  while (oldest > 0 && touched <= kMaxTwins) {
    const Piece& piece = pieces_[--oldest];
    if (piece.until >= first && piece.from <= last) ++touched;
    if (piece.main && piece.from <= first) break;
  }
  if (touched > kMaxTwins) {
    add_unknown(first, last);
    return;
  }
  const PokeRecord& p = poke(member);
  for (size_t k = oldest, count = pieces_.size(); k < count; ++k) {
    if (pieces_[k].until < first || pieces_[k].from > last || pieces_[k].until < pieces_[k].from) continue;
    Piece twin = pieces_[k];
    twin.main = false;
    twin.from = std::max(twin.from, first);
    twin.origin = kPokeBit | kBeforeBit | members_[member];
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

void PatchReplay::add_unknown(Time from, Time until) {
  if (unknown_piece_ != SIZE_MAX && saturating_add(pieces_[unknown_piece_].until, 1) >= from) {
    Piece& piece = pieces_[unknown_piece_];
    piece.from = std::min(piece.from, from);
    piece.until = std::max(piece.until, until);
    return;
  }
  unknown_piece_ = pieces_.size();
  pieces_.push_back({from, until, nullptr, lifetime_origin_, false, true});
}

// A poke that changes nothing only says what was seen there.
void PatchReplay::contradicted(size_t member) {
  const PokeRecord& p = poke(member);
  if (!std::ranges::equal(p.old_bytes(), p.new_bytes())) context_.contradictions.push_back({p.addr, p.time});
}

// Is it what the first change found there, in memory that no text is known of? Then it may be a module that was loaded
// anew, which has no record.
bool PatchReplay::may_be_loaded_anew(const PokeRecord& p) const {
  const PokeRecord& first = poke(begin_);
  return !backed_ && first.addr == p.addr && std::ranges::equal(first.old_bytes(), p.old_bytes());
}

void PatchReplay::report_break(size_t member, uint32_t group) const {
  const PokeRecord& p = poke(member);
  if (p.observed_in != kNoOrigin) return;  // who compared the copy reports that
  const PokeRecord& before = poke(group);
  const bool anew = may_be_loaded_anew(p);
  const auto kind = anew ? TextNotice::Kind::kPokeOutsideText : TextNotice::Kind::kChainBreak;
  context_.log.add(kind, p.addr, before.time, p.time, [&] {
    const AddrRange r = site_.intersect(range_of(p.addr, p.old_len));
    const std::span<const uint8_t> left(value_.data() + (r.begin - site_.begin), r.size());
    return fmt::format(
        "the change before left {}, this one found {}: {}", hex_bytes(left),
        hex_bytes(p.old_bytes().subspan(r.begin - p.addr, r.size())),
        anew ? "loaded anew, or a change in between is missing" : "a change in between is missing");
  });
}

}  // namespace asof
