// Anchors: what the traced kernel's own patching code says of time, without a clock (docs/live-text.md 7.1).
//
// A kprobe's BRK is written under stop_machine: every CPU runs aarch64_insn_patch_text_cb(), one of them
// stores the word, and none leaves before that. So with each record of such a change goes exactly one visit
// of every CPU, and the store lies between its begin and its end. Counted from a segment's start, the i-th
// visit that came back is not before the i-th such record after that start: a visit that was under way there,
// or was not traced, makes the bound lower, never higher. As long as all is traced, no more of these records
// have passed than visits began, and one that may have been under way at the segment's start.
//
// This holds where all calls of the function are kprobes' (decoder/patch_sites/arm64_anchors.cpp looks for
// that), in recordings without a sign of changes that nobody recorded, and never against the clock. The
// record's time is taken to be that of the store.
#include <algorithm>

#include "arch/arm64/flow.h"

namespace asof::arm64 {
namespace {

constexpr uint32_t kKprobe = 0xd4200080;  // BRK #4

bool is_kprobe(std::span<const uint8_t> word) {
  if (word.size() != 4) return false;
  uint32_t value = 0;
  for (size_t i = 0; i < word.size(); ++i) value |= static_cast<uint32_t>(word[i]) << (8 * i);
  return value == kKprobe;
}

}  // namespace

void Flow::find_kprobe_pokes() {
  const auto unrecorded = [](const TextNotice& n) {
    return n.kind == TextNotice::Kind::kChainBreak || n.kind == TextNotice::Kind::kBaselineMismatch;
  };
  if (std::ranges::any_of(text_.notices(), unrecorded)) return;
  for (const PokeRecord& p : text_.pokes()) {
    if (is_kprobe(p.old_bytes()) || is_kprobe(p.new_bytes())) kprobe_pokes_.push_back(p.time);
  }
}

bool Flow::lost_between(Time after, Time before) const {
  return std::ranges::any_of(text_.losses(),
                             [&](const LostRecords& l) { return l.until > after && l.after < before; });
}

void Flow::start_anchors(State& s, const SyncGroup& group) {
  if (kprobe_pokes_.empty()) return;
  segment_start_ = has_clock_ && group.timestamp
                       ? TimeBounds{to_time(*group.timestamp), to_time(*group.timestamp)}
                       : bounds_;
  segment_start_ = widen(segment_start_, clock_error_);
  allow_patches(s, 0);
}

// No more than `visits` changes since the segment's start have been made.
void Flow::allow_patches(State& s, uint64_t visits) const {
  const auto first = std::ranges::upper_bound(kprobe_pokes_, segment_start_.hi);
  const auto left = static_cast<uint64_t>(kprobe_pokes_.end() - first);
  const uint64_t under_way = 1;
  if (visits + under_way >= left) {
    s.anchor_hi = kTimeMax;
    return;
  }
  const Time record = first[static_cast<std::ptrdiff_t>(visits + under_way)];
  s.anchor_hi = lost_between(segment_start_.lo, record) ? kTimeMax : record;
}

// Visits may have been missed, or counted that were none.
void Flow::stop_counting(State& s) {
  s.patch_uncounted = true;
  s.patch_return = 0;
  s.anchor_hi = kTimeMax;
}

void Flow::enter_patch(State& s, const Variant* from) {
  if (s.patch_uncounted) return;
  if (from == nullptr || !from->link || s.patch_return != 0) {
    s.patch_uncounted = true;
    s.anchor_hi = kTimeMax;
    return;
  }
  s.patch_return = from->block.end();
  if (s.anchor_hi != kTimeMax) allow_patches(s, uint64_t{s.patch_visits} + 1);
}

void Flow::leave_patch(State& s) {
  s.patch_return = 0;
  const auto first = std::ranges::lower_bound(kprobe_pokes_, segment_start_.lo);
  const auto left = static_cast<uint64_t>(kprobe_pokes_.end() - first);
  const uint64_t visit = s.patch_visits++;
  const Time record = visit < left ? first[static_cast<std::ptrdiff_t>(visit)] : kTimeMax;
  if (visit >= left || record > bounds(s).hi || lost_between(segment_start_.lo, record)) {
    s.patch_uncounted = true;
    s.anchor_hi = kTimeMax;
    return;
  }
  s.anchor_lo = std::max(s.anchor_lo, record);
  s.synced = std::max(s.synced, s.anchor_lo);
}

}  // namespace asof::arm64
