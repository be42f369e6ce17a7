// Which version of changing text runs here? The rule is docs/live-text.md: candidates are the
// versions possible within the time bounds of this place in the trace; where more than one is left, each is
// followed on a copy of the state until it contradicts the trace, joins another, or the horizon is reached.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "arch/x86/flow.h"

namespace asof::x86 {
namespace {

bool same_text(const Variant& a, const Variant& b) {
  return a.block.size == b.block.size && a.block.space == b.block.space &&
         std::memcmp(a.block.bytes, b.block.bytes, a.block.size) == 0;
}

// The one of several variants with the same bytes that is live at the likeliest instant.
void drop_same_text(std::vector<Variant*>& known) {
  for (size_t i = 0; i < known.size(); ++i) {
    for (size_t j = known.size() - 1; j > i; --j) {
      if (same_text(*known[i], *known[j])) known.erase(known.begin() + static_cast<std::ptrdiff_t>(j));
    }
  }
}

Time middle(TimeBounds b) {
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

// The first timing packet after the packet in use: nothing that this packet tells of ran later.
Time Flow::ceiling(const State& s) {
  if (ceiling_from_ != nullptr && s.p >= ceiling_from_ && s.p <= ceiling_to_) return ceiling_;
  State t = s;
  ceiling_from_ = s.p;
  ceiling_ = kTimeMax;
  for (;;) {
    const Packet k = next_packet(t);
    if (k.type == Pk::kEnd || k.type == Pk::kBad) break;
    const bool usable =
        t.clock.update(k) && t.clock.has_time() && (k.type != Pk::kCyc || t.clock.calibrated());
    if (usable) {
      ceiling_ = t.clock.ceiling();
      break;
    }
    t.block_bytes = next_block_bytes(k, t.block_bytes);
    t.p += k.size;
  }
  ceiling_to_ = t.p;
  if (ceiling_ == kTimeMax) ceiling_ = stream_->bounds.hi;
  return ceiling_;
}

TimeBounds Flow::bounds(const State& s) {
  TimeBounds b{s.lo == kTimeMin ? stream_->bounds.lo : s.lo, ceiling(s)};
  if (b.hi < b.lo) std::swap(b.lo, b.hi);  // a clock that went backwards
  return widen(b, options_.clock_error);
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
Variant* Flow::text_of_spaces(State& s, Trial* trial, Stop& why) {
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
  std::vector<Space> spaces = s.in_user ? std::vector<Space>{s.user_space} : spaces_in(bounds(s));
  std::erase(spaces, kNoSpace);
  if (spaces.empty()) {
    if constexpr (Emit)
      contradiction(s, "E-TEXT-002", fmt::format("user address {:#x}, but no process is known here", s.ip));
    why = Stop::kNoText;
    return nullptr;
  }
  s.in_user = true;
  if (spaces.size() == 1) {
    s.user_space = spaces[0];
    s.node = cache_->node(s.user_space, s.ip, s.mode);
    return text_at<Emit>(s, *s.node, trial, why);
  }
  std::vector<Variant*> known;
  for (const Space space : spaces) {
    Node* n = cache_->node(space, s.ip, s.mode);
    if (n->state == TextState::kStable) known.push_back(n->only);
    if (n->state == TextState::kVersioned) {
      cache_->candidates(*n, bounds(s), candidates_);
      known.insert(known.end(), candidates_.known.begin(), candidates_.known.end());
    }
  }
  if (known.empty()) {
    s.user_space = spaces[0];
    s.node = cache_->node(s.user_space, s.ip, s.mode);
    return text_at<Emit>(s, *s.node, trial, why);
  }
  Variant* v = known[0];
  if (known.size() > 1) {
    const Outcome o = choose(s, known, known.size() < spaces.size(), trial, why);
    if (o.variant == nullptr) return nullptr;
    v = o.variant;
    if constexpr (Emit) {
      confidence_ = o.confidence;
      confidence_until_ = o.until;
    }
  }
  s.user_space = v->block.space;
  return v;
}

template <bool Emit>
Variant* Flow::text_at(State& s, Node& node, Trial* trial, Stop& why) {
  switch (node.state) {
    case TextState::kStable:
      return node.only;
    case TextState::kUnknown:
      if constexpr (Emit) contradiction(s, "E-TEXT-001", fmt::format("no bytes are known at {:#x}", s.ip));
      why = Stop::kNoText;
      return nullptr;
    case TextState::kInvalid:
      if constexpr (Emit)
        contradiction(s, "E-FLOW-005", fmt::format("the bytes at {:#x} are no instruction", s.ip));
      why = Stop::kContradiction;
      return nullptr;
    case TextState::kVersioned:
      break;
  }
  // Nearly always time stands clearly inside one version's life.
  const Time lo = saturating_add(s.lo == kTimeMin ? stream_->bounds.lo : s.lo, -options_.clock_error);
  if (Variant* r = node.recent; r != nullptr && r->alone_from <= lo) {
    if (r->alone_until == kTimeMax || bounds(s).hi <= r->alone_until) return r;
  }
  const TimeBounds b = bounds(s);
  cache_->candidates(node, b, candidates_);
  std::vector<Variant*>& known = candidates_.known;
  if (known.empty()) {
    if constexpr (Emit) {
      contradiction(s, "E-TEXT-001",
                    fmt::format("no bytes are known at {:#x} at this time, though at others", s.ip));
    }
    why = Stop::kNoText;
    return nullptr;
  }
  const bool unknown = candidates_.unknown;
  order_by_prior(known, b);
  drop_same_text(known);
  if (known.size() == 1 && !unknown) return node.recent = known[0];
  std::vector<Variant*> tried = known;
  const Outcome o = choose(s, tried, unknown, trial, why);
  if (o.variant == nullptr) return nullptr;
  node.recent = o.variant;
  if constexpr (Emit) {
    confidence_ = o.confidence;
    confidence_until_ = o.until;
  }
  return o.variant;
}

void Flow::order_by_prior(std::vector<Variant*>& known, TimeBounds b) const {
  const Time t = middle(b);
  std::ranges::stable_sort(known, {}, [t](const Variant* v) { return distance(v->block, t); });
}

Flow::Stop Flow::try_variant(const State& s, Variant* v, Trial& trial) {
  State copy = s;
  copy.forced = v;
  copy.node = nullptr;
  const Stop stop = walk<false>(copy, &trial);
  trial.end = copy.decisions;
  return stop;
}

// Follows every candidate. In a hypothesis (`outer`) the first that survives is enough, and its record is the
// outer one's from here on.
Flow::Outcome Flow::choose(const State& s, std::vector<Variant*>& known, bool unknown, Trial* outer,
                           Stop& why) {
  if (outer == nullptr) forks_left_ = options_.max_forks;
  Outcome out;
  if (outer != nullptr) {
    for (Variant* v : known) {
      if (forks_left_ == 0) return {known[0], Confidence::kAmbiguous, 0};
      --forks_left_;
      if (v == known.back() && !unknown) return {v, Confidence::kProved, 0};
      std::vector<uint64_t> record;
      Trial t{.until = std::min(outer->until, s.decisions + kNestedHorizon),
              .record = &record,
              .other = nullptr,
              .start = s.decisions,
              .end = 0};
      const Stop stop = try_variant(s, v, t);
      if (stop != Stop::kContradiction) return {v, Confidence::kAmbiguous, 0};
    }
    why = unknown ? Stop::kNoText : Stop::kContradiction;
    return out;
  }

  std::vector<uint64_t> first_record;
  Variant* best = nullptr;
  Stop best_stop = Stop::kContradiction;
  uint64_t joined = s.decisions;
  uint64_t best_end = 0;
  bool all_join = true;
  unsigned survivors = 0;
  for (Variant* v : known) {
    if (forks_left_ == 0) {
      all_join = false;
      ++survivors;
      if (best == nullptr) best = v;
      break;
    }
    --forks_left_;
    std::vector<uint64_t> record;
    Trial t{.until = s.decisions + options_.horizon,
            .record = &record,
            .other = best != nullptr ? &first_record : nullptr,
            .start = s.decisions,
            .end = 0};
    const Stop stop = try_variant(s, v, t);
    if (stop == Stop::kContradiction) continue;
    ++survivors;
    if (best == nullptr || (best_stop == Stop::kNoText && stop != Stop::kNoText)) {
      all_join = best == nullptr;
      best = v;
      best_stop = stop;
      best_end = t.end;
      first_record = std::move(record);
    } else if (stop == Stop::kMerged ||
               (stop == Stop::kEnd && best_stop == Stop::kEnd && t.end == best_end)) {
      joined = std::max(joined, t.end);
    } else {
      all_join = false;
    }
  }
  if (best == nullptr) {
    // Every candidate contradicts the trace: the likeliest is followed to the place where it does.
    return {known[0], Confidence::kContradiction, s.decisions + 1};
  }
  out.variant = best;
  if (survivors == 1 && !unknown) {
    out.confidence = Confidence::kProved;
    out.until = s.decisions + 1;
  } else if (survivors > 1 && all_join && !unknown) {
    out.confidence = Confidence::kEquivalent;
    out.until = joined + 1;
  } else {
    out.confidence = Confidence::kAmbiguous;
    out.until = std::max(best_end, s.decisions + 1);
  }
  return out;
}

template Variant* Flow::text_of_spaces<true>(State&, Trial*, Stop&);
template Variant* Flow::text_of_spaces<false>(State&, Trial*, Stop&);

}  // namespace asof::x86
