// Which version of changing text runs here? The rule is docs/live-text.md: candidates are the
// versions possible within the time bounds of this place in the trace; where more than one is left, each is
// followed on a copy of the state until it contradicts the trace, joins another, or the horizon is reached.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "arch/x86/flow.h"

namespace asof::x86 {
namespace {

bool same_text(const Variant& a, const Variant& b) {
  return a.block.size == b.block.size && a.block.space == b.block.space &&
         std::memcmp(a.block.bytes, b.block.bytes, a.block.size) == 0;
}

// The likeliest instant within b. Where tracing stops before the upper end, most of the interval is that
// pause.
Time likeliest(TimeBounds b, bool pause) {
  if (b.lo == kTimeMin) return b.hi;
  if (b.hi == kTimeMax || pause) return b.lo;
  return b.lo + (b.hi - b.lo) / 2;
}

// What a process mapped where it has no bytes: " (/bin/cat)", " ([vdso])".
std::string name_of_hole(const TextStore& text, Space space, Addr a) {
  if (is_kernel_address(a) || space == kNoSpace) return {};
  const Cell cell = text.cell(space, a);
  const std::string name = cell.versions.empty() ? "" : text.origin(cell.versions.front().origin).name;
  return name.empty() ? name : fmt::format(" ({})", name);
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
  Clock clock = s.clock;
  uint8_t block_bytes = s.block_bytes;
  const uint8_t* p = s.p;
  ceiling_from_ = p;
  ceiling_ = kTimeMax;
  ceiling_pause_ = false;
  for (;;) {
    if (block_bytes == 0) p = skip_short_tnt(p, end_);
    const Packet k = next_packet(p, block_bytes);
    if (k.type == Pk::kEnd || k.type == Pk::kBad) break;
    if (clock.update(k) && clock.has_time() && clock.exact()) {
      ceiling_ = clock.ceiling();
      break;
    }
    ceiling_pause_ |= k.type == Pk::kPgd;
    block_bytes = next_block_bytes(k, block_bytes);
    p += k.size;
  }
  ceiling_to_ = p;
  if (ceiling_ == kTimeMax) ceiling_ = stream_->bounds.hi;
  return ceiling_;
}

TimeBounds Flow::bounds(const State& s) {
  TimeBounds b{s.lo == kTimeMin ? stream_->bounds.lo : s.lo, ceiling(s)};
  if (b.hi < b.lo) std::swap(b.lo, b.hi);  // a clock that went backwards
  b = widen(b, options_.clock_error);
  b.lo = std::max(b.lo, s.anchor_lo);
  b.hi = std::max(b.hi, b.lo);
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
  const auto& contexts = stream_->contexts;
  Space only = s.in_user ? s.user_space : contexts.size() == 1 ? contexts[0].space : kNoSpace;
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
    if (n->only != nullptr) {
      known.push_back(n->only);
    } else if (n->state == TextState::kVersioned) {
      cache_->candidates(*n, bounds(s), candidates_);
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
  const Hypothesis* h = hypotheses.data();
  if (hypotheses.size() > 1) h = choose<Emit>(s, hypotheses, unknown, trial, why);
  if (h == nullptr) return nullptr;
  s.user_space = h->variant->block.space;
  if constexpr (Emit) {
    const auto alike =
        std::ranges::count_if(known, [h](const Variant* v) { return same_text(*h->variant, *v); });
    const bool proved = hypotheses.size() > 1 && confidence_ == Confidence::kProved;
    s.space_unsure = !proved || unknown || alike > 1;
  }
  return h->variant;
}

template <bool Emit>
Variant* Flow::text_at(State& s, Node& node, Trial* trial, Stop& why) {
  if (node.hooked) [[unlikely]]
    visit(s, node);
  switch (node.state) {
    case TextState::kStable:
    case TextState::kHooked:
      return node.only;
    case TextState::kUnknown:
      if constexpr (Emit)
        contradiction(s, "E-TEXT-001", [&] {
          return text_with("no bytes are known at ", s.ip, name_of_hole(text_, s.user_space, s.ip));
        });
      why = Stop::kNoText;
      return nullptr;
    case TextState::kInvalid:
      if constexpr (Emit)
        contradiction(s, "E-FLOW-005",
                      [&] { return fmt::format("the bytes at {:#x} are no instruction", s.ip); });
      else
        trial->unsure = trial->unsure || may_have_changed(s, s.ip);
      why = Stop::kContradiction;
      return nullptr;
    case TextState::kVersioned:
      break;
  }
  const TimeBounds b = bounds(s);
  // Nearly always time stands clearly inside one version's life.
  if (Variant* r = node.recent; r != nullptr && r->alone_from <= b.lo && b.hi <= r->alone_until) return r;
  cache_->candidates(node, b, candidates_);
  std::vector<Variant*>& known = candidates_.known;
  if (known.empty() && !candidates_.missing) {
    if constexpr (Emit)
      contradiction(s, "E-FLOW-005",
                    [&] { return fmt::format("the bytes at {:#x} are no instruction at this time", s.ip); });
    else
      trial->unsure = trial->unsure || may_have_changed(s, s.ip);
    why = Stop::kContradiction;
    return nullptr;
  }
  if (known.empty()) {
    if constexpr (Emit) {
      contradiction(s, "E-TEXT-001", [&] {
        return fmt::format("no bytes are known at {:#x} at this time, though at others", s.ip);
      });
    }
    why = Stop::kNoText;
    return nullptr;
  }
  keep_life(s, known);
  drop_poked(s, known);
  const bool unknown = candidates_.unknown;
  s.unsure = s.unsure || unknown;  // nothing can rule it out
  std::vector<Hypothesis> hypotheses = group(known, b);
  if (hypotheses.size() == 1 && !unknown) {
    if (!s.unsure && !hypotheses[0].variant->block.unsure) assume(s, hypotheses[0]);
    s.forced = nullptr;
    return node.recent = hypotheses[0].variant;
  }
  if (Emit && hypotheses.size() == 1 && s.decisions < followed_until_) return hypotheses[0].variant;
  const Hypothesis* h = choose<Emit>(s, hypotheses, unknown, trial, why);
  if (h == nullptr) return nullptr;
  return node.recent = h->variant;
}

// Leaves those of the life that the flow is in, where its bytes are among them.
void Flow::keep_life(const State& s, std::vector<Variant*>& known) const {
  const auto is_program = [&](OriginRef o) {
    return o != kNoOrigin && !is_poke(o) && text_.origin(o).kind == OriginKind::kBpfImage;
  };
  if (known.size() < 2 || !is_program(s.life)) return;
  if (std::ranges::none_of(known, [&](const Variant* v) { return v->block.origin == s.life; })) return;
  std::erase_if(known,
                [&](const Variant* v) { return v->block.origin != s.life && is_program(v->block.origin); });
}

// Without those that a poke up to s.poked_lo put other bytes in the place of.
void Flow::drop_poked(const State& s, std::vector<Variant*>& known) {
  if (s.poked_lo == kTimeMin) return;
  const auto is_over = [&](const Variant* v) {
    if (v->block.until >= s.poked_lo) return false;
    return std::ranges::any_of(known, [&](const Variant* next) {
      return is_poke(next->block.origin) && next->block.from == v->block.until + 1;
    });
  };
  std::vector<Variant*> left;
  std::ranges::remove_copy_if(known, std::back_inserter(left), is_over);
  if (!left.empty()) known = std::move(left);
}

// One hypothesis per text, likeliest first. The same bytes may be live at several times (a key switched on,
// off and on again): the earliest of them bounds the time from below.
std::vector<Flow::Hypothesis> Flow::group(std::vector<Variant*>& known, TimeBounds b) const {
  const Time t = likeliest(b, ceiling_pause_);
  std::ranges::stable_sort(known, {}, [t](const Variant* v) { return distance(v->block, t); });
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
  if (h.returns != Returns::Policy::kUnknown) s.rets.settle(h.returns);
  if (h.from == kTimeMin) return;
  s.lo = std::max(s.lo, saturating_add(h.from, -options_.clock_error));
  s.floor = std::max(s.floor, s.lo);
}

// Inside a hypothesis: depth first. The first candidate that survives to the outer one's end decides it
// (`why` says how it ended). States from which everything failed are remembered, so
// that choices that make no difference are not tried in all combinations.
void Flow::choose_nested(const State& s, const std::vector<Hypothesis>& hypotheses, bool unknown,
                         Trial& trial, Stop& why) {
  for (const Hypothesis& h : hypotheses) {
    if (forks_left_ == 0 || trial.depth >= kMaxDepth) {
      why = Stop::kOut;  // too many to tell: not contradicted
      trial.end = s.decisions;
      return;
    }
    --forks_left_;
    const size_t mark = trial.record.size();
    const uint64_t way = trial.way;
    State copy = s;
    assume(copy, h);
    ++trial.depth;
    const Stop stop = walk<false>(copy, &trial);
    --trial.depth;
    if (stop != Stop::kContradiction) {
      if (&h != &hypotheses.back() || unknown) trial.untried = std::min(trial.untried, s.decisions);
      why = stop;
      return;
    }
    for (size_t i = mark; i < trial.record.size(); ++i) {
      const auto [dead, fresh] = failed_.try_emplace(trial.states[i], trial.reached[i]);
      if (!fresh && trial.reached[i] < dead->second) dead.value() = trial.reached[i];
    }
    failed_unsure_ = failed_unsure_ || trial.unsure;
    trial.open = trial.open || trial.unsure;
    trial.record.resize(mark);
    trial.states.resize(mark);
    trial.ways.resize(mark);
    trial.way = way;
    trial.reached.resize(mark);
  }
  why = unknown ? Stop::kNoText : Stop::kContradiction;
  trial.end = s.decisions;
}

// Follows every candidate from here and judges. Where none fits, it gives the likeliest, which leads to the
// place of the contradiction; or none, with a gap open here, where something unknown can be here as well and
// the trace contradicts all others before it says an address.
template <>
const Flow::Hypothesis* Flow::choose<true>(State& s, const std::vector<Hypothesis>& hypotheses, bool unknown,
                                           Trial*, Stop&) {
  forks_left_ = options_.max_forks;
  trial_blocks_left_ = kTrialBlocks;
  failed_.clear();
  failed_unsure_ = false;
  const Hypothesis* best = nullptr;
  Stop best_stop = Stop::kContradiction;
  uint64_t best_end = 0, best_untried = UINT64_MAX, joined = s.decisions;
  std::vector<uint64_t> best_record, best_ways;
  size_t best_unsure_at = SIZE_MAX;
  unsigned survivors = 0;
  bool all_join = true;
  bool same_way = true;  // from here to where they join they run the same addresses
  uint64_t best_way = 0;
  bool open = unknown;                             // there may be more than the candidates that are left
  bool none_goes_on = unsure_ != Unsure::kAlways;  // each is contradicted before the next address
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
      none_goes_on = none_goes_on && copy.unsure;
      // What was changed unseen on the way, or here, may be what the trace contradicts.
      open = open || t.unsure;
      continue;
    }
    ++survivors;
    if (best == nullptr || (best_stop == Stop::kNoText && stop != Stop::kNoText)) {
      all_join = best == nullptr;
      best = &h;
      best_stop = stop;
      best_end = t.end;
      best_untried = t.untried;
      best_record = std::move(t.record);
      best_ways = std::move(t.ways);
      best_way = t.way;
      best_unsure_at = t.unsure_at;
    } else if (t.untried != UINT64_MAX || best_untried < t.end || t.unsure_at != SIZE_MAX ||
               best_unsure_at <= t.record.size()) {
      // One way of this hypothesis meets one of the other. There are more, or it may have been another.
      all_join = false;
    } else if (stop == Stop::kMerged) {
      joined = std::max(joined, t.end - 1);  // the same from what was used last
      same_way = same_way && t.way == best_ways[t.record.size()];
    } else if (stop == Stop::kSegmentEnd && best_stop == Stop::kSegmentEnd && t.end == best_end) {
      joined = std::max(joined, t.end);
      same_way = same_way && t.way == best_way;
    } else {
      all_join = false;
    }
  }
  // A loop that uses no trace ends earlier where every turn asks what the text is.
  s.idle_blocks += (kTrialBlocks - trial_blocks_left_) / 16;
  // A choice inside a stretch that is in doubt itself is no surer than that, and proves nothing about time.
  const bool in_window = confidence_ > Confidence::kProved && s.decisions < confidence_until_;
  const bool in_doubt = in_window || s.unsure;
  const Confidence doubt = in_window ? confidence_ : Confidence::kCertain;
  const uint64_t doubt_until = in_window ? confidence_until_ : 0;
  constexpr uint64_t kForGood = UINT64_MAX;  // until the next sync point or gap
  if (best == nullptr && unknown && none_goes_on && hypotheses[0].variant != nullptr &&
      hypotheses[0].returns == Returns::Policy::kUnknown) {
    contradiction(s, "E-TEXT-001", [&] {
      return text_with("what is known of ", s.ip, " does not fit the trace: something unknown was there");
    });
    return nullptr;
  }
  if (best == nullptr) {
    confidence_ = Confidence::kContradiction;
    confidence_until_ = kForGood;
    return hypotheses.data();
  }
  if (survivors == 1 && unknown) followed_until_ = best_end;
  if (survivors == 1 && !open) {
    confidence_ = Confidence::kProved;
    confidence_until_ = s.decisions + 1;
    if (!in_doubt) {
      assume(s, *best);
      s.forced = nullptr;
    }
  } else if (survivors > 1 && all_join && !open) {
    confidence_ = same_way ? Confidence::kEquivalent : Confidence::kAmbiguous;
    confidence_until_ = joined + 1;
  } else {  // up to the next address in the trace
    confidence_ = Confidence::kAmbiguous;
    confidence_until_ = s.decisions + 1;
    s.unsure = true;
  }
  confidence_ = std::max(confidence_, doubt);
  confidence_until_ = std::max(confidence_until_, doubt_until);
  return best;
}

template <>
const Flow::Hypothesis* Flow::choose<false>(State& s, const std::vector<Hypothesis>& hypotheses, bool unknown,
                                            Trial* trial, Stop& why) {
  choose_nested(s, hypotheses, unknown, *trial, why);
  return nullptr;
}

template Variant* Flow::text_of_spaces<true>(State&, Trial*, Stop&);
template Variant* Flow::text_of_spaces<false>(State&, Trial*, Stop&);

}  // namespace asof::x86
