// Which version of changing text runs here? The rule is docs/live-text.md: candidates are the
// versions possible within the time bounds of this place in the trace; where more than one is left, each is
// followed on a copy of the state until it contradicts the trace, joins another, or the horizon is reached.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "arch/arm64/flow.h"

namespace asof::arm64 {
namespace {

bool same_text(const Variant& a, const Variant& b) {
  return a.block.size == b.block.size && a.block.space == b.block.space &&
         std::memcmp(a.block.bytes, b.block.bytes, a.block.size) == 0;
}

// The likeliest instant within b.
Time likeliest(TimeBounds b) {
  if (b.lo == kTimeMin) return b.hi;
  if (b.hi == kTimeMax) return b.lo;
  return b.lo + (b.hi - b.lo) / 2;
}

Time distance(const Block& b, Time t) {
  if (t < b.from) return saturating_add(b.from, -t);
  if (t > b.until) return saturating_add(t, -b.until);
  return 0;
}

}  // namespace

template <>
Variant* Flow::choose<true>(State&, const std::vector<Hypothesis>&, bool, Trial*, Stop&);
template <>
Variant* Flow::choose<false>(State&, const std::vector<Hypothesis>&, bool, Trial*, Stop&);

// When the element in use ran: after the last timestamp in front of the one before it, and not after the
// first one behind it.
TimeBounds Flow::bounds(const State& s) {
  TimeBounds b{s.lo == kTimeMin ? bounds_.lo : s.lo, bounds_.hi};
  if (has_clock_) {
    const auto next = elements_->timestamp(s.times_seen);
    b.hi = next ? to_time(*next) : kTimeMax;
  }
  if (b.hi < b.lo) std::swap(b.lo, b.hi);  // a clock that went backwards
  const TimeBounds anchored{std::max(b.lo, s.anchor_lo), std::min(b.hi, s.anchor_hi)};
  return widen(anchored.lo <= anchored.hi ? anchored : b, clock_error_);
}

// Which versions may run: arm64 changes branches and NOPs without synchronising other CPUs, and a CPU may go
// on with what it had until its next context synchronisation event after the change (Arm DDI 0487, B2.2.5).
// All sites of a key are so in doubt together, and each for itself.
TimeBounds Flow::text_bounds(const State& s) {
  TimeBounds b = bounds(s);
  const Time synced = s.synced == kTimeMin ? synced_before() : s.synced;
  b.lo = std::min(b.lo, saturating_add(synced, -clock_error_));
  return b;
}

// User address spaces that may be current within b, likeliest first.
std::vector<Space> Flow::spaces_in(TimeBounds b) const {
  std::vector<Space> out;
  const auto& c = stream_->contexts;
  auto it =
      std::upper_bound(c.begin(), c.end(), b.hi, [](Time t, const ContextChange& x) { return t < x.time; });
  while (it != c.begin()) {
    --it;
    if (std::ranges::find(out, it->space) == out.end()) out.push_back(it->space);
    if (it->time <= b.lo) return out;
  }
  if (out.empty() && !c.empty()) out.push_back(c.front().space);
  return out;
}

// The text at s.ip, or nullptr: then (Emit) a gap is open, or `why` says why a hypothesis ends.
template <bool Emit>
Variant* Flow::text(State& s, Trial* trial, Stop& why) {
  if (s.forced != nullptr) {
    Variant* v = s.forced;
    s.forced = nullptr;
    s.in_user = v->block.space != kKernelSpace;
    if (s.in_user) s.user_space = v->block.space;
    return v;
  }
  if (is_kernel_address(s.ip)) {
    s.in_user = false;
    if (s.node == nullptr) s.node = cache_->node(kKernelSpace, s.ip, s.mode);
    return text_at<Emit>(s, *s.node, trial, why);
  }
  if (s.node != nullptr && s.in_user) return text_at<Emit>(s, *s.node, trial, why);

  // Coming from the kernel or from nowhere: whose address is it? One task, unless the switch lies within the
  // bounds.
  Space only = s.in_user ? s.user_space : only_space();
  std::vector<Space> spaces;
  if (only == kNoSpace) {
    spaces = spaces_in(bounds(s));
    std::erase(spaces, kNoSpace);
    if (spaces.empty()) {
      if constexpr (Emit) {
        contradiction(s, "E-TEXT-002",
                      [&] { return fmt::format("user address {:#x}, but no process is known here", s.ip); });
      }
      why = Stop::kNoText;
      return nullptr;
    }
    if (spaces.size() == 1) only = spaces[0];
  }
  if (!s.in_user) s.space_unsure = false;
  s.in_user = true;
  if (only != kNoSpace) {
    s.user_space = only;
    s.node = cache_->node(only, s.ip, s.mode);
    return text_at<Emit>(s, *s.node, trial, why);
  }
  std::vector<Variant*> known;
  bool unknown = false;
  for (const Space space : spaces) {
    Node* n = cache_->node(space, s.ip, s.mode);
    if (n->state == TextState::kStable) {
      known.push_back(n->only);
    } else if (n->state == TextState::kVersioned) {
      cache_->candidates(*n, text_bounds(s), candidates_);
      known.insert(known.end(), candidates_.known.begin(), candidates_.known.end());
      unknown = unknown || candidates_.unknown || candidates_.known.empty();
    } else {
      unknown = true;
    }
  }
  s.space_unsure = true;
  if (known.empty()) {
    s.user_space = spaces[0];
    s.node = cache_->node(s.user_space, s.ip, s.mode);
    return text_at<Emit>(s, *s.node, trial, why);
  }
  const std::vector<Hypothesis> hypotheses = group(known, bounds(s));
  Variant* v = hypotheses[0].variant;
  if (hypotheses.size() > 1) v = choose<Emit>(s, hypotheses, unknown, trial, why);
  if (v == nullptr) return nullptr;
  s.user_space = v->block.space;
  if constexpr (Emit) {
    const auto alike = std::ranges::count_if(known, [v](const Variant* k) { return same_text(*v, *k); });
    const bool proved = hypotheses.size() > 1 && confidence_ == Confidence::kProved;
    s.space_unsure = !proved || unknown || alike > 1;
  }
  return v;
}

// A kprobe's slot: a copy of the instruction under its BRK, then a BRK of its own, in a page whose content no
// record has. Only instructions that are no branches run from there, one at a time.
Variant* Flow::slot_text(State& s, Node& node) {
  if (s.trap == 0 || s.atom_count != 0 || s.mode != kA64 || !is_kernel_address(s.ip) || !elements_->has(s.e))
    return nullptr;
  const Element& next = (*elements_)[s.e];
  if (next.kind != El::kException || next.value != s.ip + 4) return nullptr;
  const Cell cell = text_.cell(kKernelSpace, s.trap);
  const Version* original = nullptr;
  for (const Version& v : cell.versions) {
    if (v.bytes == nullptr || cell.range.end - s.trap < 4) continue;
    Insn insn;
    decode_insn({v.bytes + (s.trap - cell.range.begin), 4}, s.trap, kA64, false, insn);
    if (insn.waypoint != Waypoint::kNone) continue;
    original = &v;
  }
  if (original == nullptr) return nullptr;
  return cache_->synthetic(node, {original->bytes + (s.trap - cell.range.begin), 4}, original->origin);
}

template <bool Emit>
Variant* Flow::text_at(State& s, Node& node, Trial* trial, Stop& why) {
  switch (node.state) {
    case TextState::kStable:
      return node.only;
    case TextState::kUnknown:
      if (Variant* slot = slot_text(s, node)) return slot;
      if constexpr (Emit)
        contradiction(s, "E-TEXT-001", [&] { return text_with("no bytes are known at ", s.ip); });
      why = Stop::kNoText;
      return nullptr;
    case TextState::kInvalid:
      if constexpr (Emit)
        contradiction(s, "E-FLOW-005",
                      [&] { return fmt::format("the bytes at {:#x} are no instruction", s.ip); });
      else
        trial->unsure = trial->unsure || may_have_changed(s);
      why = Stop::kContradiction;
      return nullptr;
    case TextState::kVersioned:
      break;
  }
  const TimeBounds b = text_bounds(s);
  // Nearly always time stands clearly inside one version's life.
  if (Variant* r = node.recent; r != nullptr && r->alone_from <= b.lo && b.hi <= r->alone_until) return r;
  cache_->candidates(node, b, candidates_);
  std::vector<Variant*>& known = candidates_.known;
  if (known.empty() && !candidates_.missing) {
    if constexpr (Emit)
      contradiction(s, "E-FLOW-005",
                    [&] { return fmt::format("the bytes at {:#x} are no instruction at this time", s.ip); });
    else
      trial->unsure = trial->unsure || may_have_changed(s);
    why = Stop::kContradiction;
    return nullptr;
  }
  if (known.empty()) {
    if (Variant* slot = slot_text(s, node)) return slot;
    if constexpr (Emit) {
      contradiction(s, "E-TEXT-001", [&] {
        return fmt::format("no bytes are known at {:#x} at this time, though at others", s.ip);
      });
    }
    why = Stop::kNoText;
    return nullptr;
  }
  const bool unknown = candidates_.unknown;
  s.unsure = s.unsure || unknown;  // nothing can rule it out
  std::vector<Hypothesis> hypotheses = group(known, bounds(s));
  if (hypotheses.size() == 1 && !unknown) return node.recent = hypotheses[0].variant;
  Variant* v = choose<Emit>(s, hypotheses, unknown, trial, why);
  if (Emit && v != nullptr) node.recent = v;
  return v;
}

// One hypothesis per text, likeliest first: what was seen in memory before what was worked out of records and
// tables. The same bytes may be live at several times (a key switched on, off and on again): the earliest of
// them bounds the time from below.
std::vector<Flow::Hypothesis> Flow::group(std::vector<Variant*>& known, TimeBounds b) const {
  const Time t = likeliest(b);
  const auto likely = [this, t](const Variant* v) {
    return std::pair(distance(v->block, t), text_.origin(v->block.origin).kind == OriginKind::kRaw);
  };
  std::ranges::stable_sort(known, {}, likely);
  std::vector<Hypothesis> out;
  for (Variant* v : known) {
    const auto same =
        std::ranges::find_if(out, [v](const Hypothesis& h) { return same_text(*h.variant, *v); });
    if (same == out.end()) {
      out.push_back({v, v->block.from});
      continue;
    }
    same->from = std::min(same->from, v->block.from);
    if (v->block.unsure) same->variant = v;  // the bytes may be those of a time at which they are not sure
  }
  return out;
}

// Takes a hypothesis: from here on time has reached the start of its version's life.
void Flow::assume(State& s, const Hypothesis& h) const {
  s.forced = h.variant;
  s.node = nullptr;
  if (h.from == kTimeMin) return;
  s.lo = std::max(s.lo, saturating_add(h.from, -clock_error_));
  s.assumed = s.assumed || s.floor < s.lo;
  s.floor = std::max(s.floor, s.lo);
}

// Inside a hypothesis: depth first. The first candidate that survives to the outer one's end decides it
// (`why` says how it ended, no variant is returned). States from which everything failed are remembered, so
// that choices that make no difference are not tried in all combinations.
Variant* Flow::choose_nested(const State& s, const std::vector<Hypothesis>& hypotheses, bool unknown,
                             Trial& trial, Stop& why) {
  for (const Hypothesis& h : hypotheses) {
    if (forks_left_ == 0 || trial.depth >= kMaxDepth) {
      why = Stop::kOut;  // too many to tell: not contradicted
      trial.end = s.decisions;
      return nullptr;
    }
    --forks_left_;
    const size_t mark = trial.record.size();
    const bool was_unsure = std::exchange(trial.unsure, s.unsure);
    State copy = s;
    assume(copy, h);
    ++trial.depth;
    const Stop stop = walk<false>(copy, &trial);
    --trial.depth;
    trial.unsure = trial.unsure || copy.unsure;
    if (stop != Stop::kContradiction) {
      trial.unsure = trial.unsure || was_unsure;
      if (&h != &hypotheses.back() || unknown) trial.untried = std::min(trial.untried, s.decisions);
      why = stop;
      return nullptr;
    }
    for (size_t i = mark; i < trial.record.size(); ++i) failed_.try_emplace(trial.states[i], trial.since[i]);
    failed_unsure_ = failed_unsure_ || trial.unsure;
    trial.open = trial.open || trial.unsure;
    trial.unsure = trial.unsure || was_unsure;
    trial.record.resize(mark);
    trial.states.resize(mark);
    trial.since.resize(mark);
    trial.ways.resize(mark);
  }
  why = unknown ? Stop::kNoText : Stop::kContradiction;
  trial.end = s.decisions;
  return nullptr;
}

// Follows every candidate from here and judges. Always gives a variant: where none fits, the likeliest, which
// leads to the place of the contradiction.
template <>
Variant* Flow::choose<true>(State& s, const std::vector<Hypothesis>& hypotheses, bool unknown, Trial*,
                            Stop&) {
  forks_left_ = options_.max_forks;
  trial_blocks_left_ = kTrialBlocks;
  failed_.clear();
  failed_unsure_ = false;
  const Hypothesis* best = nullptr;
  Stop best_stop = Stop::kContradiction;
  uint64_t best_end = 0, best_untried = UINT64_MAX, joined = s.decisions;
  std::vector<uint64_t> best_record, best_ways;
  uint64_t best_way = 0;
  size_t best_unsure_at = SIZE_MAX;
  unsigned survivors = 0;
  bool all_join = true, all_meet = true;
  bool same_way = true;  // up to where they join the same addresses run, and take the same atoms
  bool open = unknown;   // there may be more than the candidates that are left
  for (const Hypothesis& h : hypotheses) {
    Trial t;
    t.start = s.decisions;
    t.until = s.decisions + options_.horizon;
    if (best != nullptr) t.other = &best_record;
    State copy = s;
    assume(copy, h);
    const Stop stop = walk<false>(copy, &t);
    t.unsure = t.unsure || copy.unsure;
    open = open || t.open;
    if (stop == Stop::kContradiction) {
      // What was changed unseen on the way, or here, may be what the trace contradicts.
      open = open || t.unsure;
      continue;
    }
    ++survivors;
    if (best == nullptr || (best_stop == Stop::kNoText && stop != Stop::kNoText)) {
      all_join = all_meet = best == nullptr;
      best = &h;
      best_stop = stop;
      best_end = t.end;
      best_untried = t.untried;
      best_record = std::move(t.record);
      best_ways = std::move(t.ways);
      best_way = t.way;
      best_unsure_at = t.unsure_at;
    } else if (t.untried != UINT64_MAX || t.unsure_at != SIZE_MAX || best_unsure_at <= t.record.size()) {
      // One way of this hypothesis meets one of the other. There are more, or it may have been another.
      all_join = all_meet = false;
    } else if (stop == Stop::kMerged) {
      joined = std::max(joined, t.end - 1);  // the same from what was used last
      same_way = same_way && t.way == best_ways[t.record.size()];
      if (best_untried < t.end)
        all_join = false;  // as one way of the other, which is judged where it is taken
    } else if (stop == Stop::kSegmentEnd && best_stop == Stop::kSegmentEnd && t.end == best_end && best_untried >= t.end) {
      joined = std::max(joined, t.end);
      same_way = same_way && t.way == best_way;
    } else {
      all_join = all_meet = false;
    }
  }
  // A loop that uses no trace ends earlier where every turn asks what the text is.
  s.idle_blocks += (kTrialBlocks - trial_blocks_left_) / 16;
  // A choice inside a stretch that is in doubt itself is no surer than that, and proves nothing about time.
  const bool in_window = confidence_ > Confidence::kProved && s.decisions < confidence_until_;
  const Confidence doubt = in_window ? confidence_ : Confidence::kCertain;
  const uint64_t doubt_until = in_window ? confidence_until_ : 0;
  constexpr uint64_t kForGood = UINT64_MAX;  // until the next sync point or gap
  if (best == nullptr) {
    confidence_ = Confidence::kContradiction;
    confidence_until_ = kForGood;
    return hypotheses[0].variant;
  }
  if (survivors == 1 && !open) {
    confidence_ = Confidence::kProved;
    confidence_until_ = s.decisions + 1;
    if (!in_window && !s.unsure) {
      assume(s, *best);
      s.forced = nullptr;
    }
  } else if (survivors > 1 && all_meet && !open) {
    confidence_ = all_join && same_way ? Confidence::kEquivalent : Confidence::kAmbiguous;
    confidence_until_ = joined + 1;
  } else {  // up to the next address in the trace
    confidence_ = Confidence::kAmbiguous;
    confidence_until_ = s.decisions + 1;
    s.unsure = true;
  }
  confidence_ = std::max(confidence_, doubt);
  confidence_until_ = std::max(confidence_until_, doubt_until);
  return best->variant;
}

template <>
Variant* Flow::choose<false>(State& s, const std::vector<Hypothesis>& hypotheses, bool unknown, Trial* trial,
                             Stop& why) {
  return choose_nested(s, hypotheses, unknown, *trial, why);
}

template Variant* Flow::text<true>(State&, Trial*, Stop&);
template Variant* Flow::text<false>(State&, Trial*, Stop&);

}  // namespace asof::arm64
