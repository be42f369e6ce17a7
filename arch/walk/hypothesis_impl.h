// Definitions of Hypotheses, for the one source file of each machine that instantiates them.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "arch/walk/hypothesis.h"

namespace asof::walk {

// Blocks walked without using trace: beyond this the text has an endless loop that no CPU runs (E-FLOW-003).
inline constexpr uint32_t kMaxIdleBlocks = 1 << 16;
inline constexpr uint32_t kMaxIdleInTrial = 1 << 12;  // a hypothesis is given less

template <class Variant>
bool same_text(const Variant& a, const Variant& b) {
  return a.block.size == b.block.size && a.block.space == b.block.space &&
         std::memcmp(a.block.bytes, b.block.bytes, a.block.size) == 0;
}

// The likeliest instant within b. Where tracing stops before the upper end, most of the interval is that
// pause.
inline Time likeliest(TimeBounds b, bool pause) {
  if (b.lo == kTimeMin) return b.hi;
  if (b.hi == kTimeMax || pause) return b.lo;
  return b.lo + (b.hi - b.lo) / 2;
}

inline Time distance(const Block& b, Time t) {
  if (t < b.from) return saturating_add(b.from, -t);
  if (t > b.until) return saturating_add(t, -b.until);
  return 0;
}

// What a process mapped where it has no bytes: " (/bin/cat)", " ([vdso])".
inline std::string name_of_hole(const TextStore& text, Space space, Addr a) {
  if (is_kernel_address(a) || space == kNoSpace) return {};
  const Cell cell = text.cell(space, a);
  const std::string name = cell.versions.empty() ? "" : text.origin(cell.versions.front().origin).name;
  return name.empty() ? name : fmt::format(" ({})", name);
}

template <class Flow, class Types>
std::vector<Space> Hypotheses<Flow, Types>::spaces_in(TimeBounds b) const {
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

template <class Flow, class Types>
template <bool Emit>
Variant<typename Types::Isa>* Hypotheses<Flow, Types>::text(State& s, Trial* trial, Stop& why) {
  if (s.forced != nullptr) {
    Variant* v = std::exchange(s.forced, nullptr);
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
    spaces = spaces_in(self().bounds(s));
    std::erase(spaces, kNoSpace);
    if (spaces.empty()) {
      if constexpr (Emit) {
        this->contradiction(s, "E-TEXT-002", [&] {
          return fmt::format("user address {:#x}, but no process is known here", s.ip);
        });
      }
      why = Stop::kNoText;
      return nullptr;
    }
    if (spaces.size() == 1) only = spaces[0];
  }
  if (!s.in_user) s.space_unsure = false;
  s.in_user = true;
  if (only == kNoSpace) return text_of_spaces<Emit>(s, spaces, trial, why);
  s.user_space = only;
  s.node = cache_->node(only, s.ip, s.mode);
  return text_at<Emit>(s, *s.node, trial, why);
}

// The same at an address of one of several processes.
template <class Flow, class Types>
template <bool Emit>
Variant<typename Types::Isa>* Hypotheses<Flow, Types>::text_of_spaces(State& s,
                                                                      const std::vector<Space>& spaces,
                                                                      Trial* trial, Stop& why) {
  std::vector<Variant*> known;
  bool unknown = false;
  for (const Space space : spaces) {
    Node* n = cache_->node(space, s.ip, s.mode);
    if (n->only != nullptr) {
      known.push_back(n->only);
    } else if (n->state == TextState::kVersioned) {
      cache_->candidates(*n, self().text_bounds(s), candidates_);
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
  const std::vector<Hypothesis> hypotheses = group(known, self().bounds(s));
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

// No bytes are known at s.ip; `ever`: at other times there are some.
template <class Flow, class Types>
template <bool Emit>
Variant<typename Types::Isa>* Hypotheses<Flow, Types>::no_text(State& s, Node& node, bool ever, Stop& why) {
  if (Variant* v = self().unrecorded_text(s, node)) return v;
  if constexpr (Emit) {
    this->contradiction(s, "E-TEXT-001", [&] {
      return ever ? text_with("no bytes are known at ", s.ip, " at this time, though at others")
                  : text_with("no bytes are known at ", s.ip, name_of_hole(text_, s.user_space, s.ip));
    });
  }
  why = Stop::kNoText;
  return nullptr;
}

// The bytes at s.ip are no instruction; `ever`: at other times they are.
template <class Flow, class Types>
template <bool Emit>
Variant<typename Types::Isa>* Hypotheses<Flow, Types>::no_instruction(State& s, bool ever, Trial* trial,
                                                                      Stop& why) {
  if constexpr (Emit) {
    this->contradiction(s, "E-FLOW-005", [&] {
      return text_with("the bytes at ", s.ip,
                       ever ? " are no instruction at this time" : " are no instruction");
    });
  } else {
    trial->unsure = trial->unsure || self().may_have_changed(s);
  }
  why = Stop::kContradiction;
  return nullptr;
}

template <class Flow, class Types>
template <bool Emit>
Variant<typename Types::Isa>* Hypotheses<Flow, Types>::text_at(State& s, Node& node, Trial* trial,
                                                               Stop& why) {
  self().visit(s, node);
  switch (node.state) {
    case TextState::kStable:
    case TextState::kHooked:
      return node.only;
    case TextState::kUnknown:
      return no_text<Emit>(s, node, false, why);
    case TextState::kInvalid:
      return no_instruction<Emit>(s, false, trial, why);
    case TextState::kVersioned:
      break;
  }
  const TimeBounds b = self().text_bounds(s);
  // Nearly always time is clearly inside one version's life.
  if (Variant* r = node.recent; r != nullptr && r->alone_from <= b.lo && b.hi <= r->alone_until) return r;
  cache_->candidates(node, b, candidates_);
  std::vector<Variant*>& known = candidates_.known;
  if (known.empty()) {
    return candidates_.missing ? no_text<Emit>(s, node, true, why)
                               : no_instruction<Emit>(s, true, trial, why);
  }
  const bool narrowed = self().narrow(s, known);
  const bool unknown = candidates_.unknown;
  s.unsure = s.unsure || unknown;  // nothing can rule it out
  const std::vector<Hypothesis> hypotheses = group(known, self().bounds(s));
  if (hypotheses.size() == 1 && !unknown) {
    // Of those that time allows the flow itself has excluded the others.
    if (narrowed && !in_doubt(s) && !hypotheses[0].variant->block.unsure) {
      self().assume(s, hypotheses[0]);
      s.forced = nullptr;
    }
    return node.recent = hypotheses[0].variant;
  }
  if (Emit && hypotheses.size() == 1 && s.decisions < followed_until_) return hypotheses[0].variant;
  const Hypothesis* h = choose<Emit>(s, hypotheses, unknown, trial, why);
  return h == nullptr ? nullptr : node.recent = h->variant;
}

// One hypothesis per text, likeliest first: what was seen in memory before what was worked out of records and
// tables. The same bytes may be live at several times (a key switched on, off and on again): the earliest of
// them bounds the time from below.
template <class Flow, class Types>
std::vector<typename Types::Hypothesis> Hypotheses<Flow, Types>::group(std::vector<Variant*>& known,
                                                                       TimeBounds b) const {
  const Time t = likeliest(b, self().pause_ahead());
  const auto likely = [this, t](const Variant* v) {
    return std::pair(distance(v->block, t), text_.origin(v->block.origin).kind == OriginKind::kRaw);
  };
  std::ranges::stable_sort(known, {}, likely);
  std::vector<Hypothesis> out;
  for (Variant* v : known) {
    const auto same =
        std::ranges::find_if(out, [v](const Hypothesis& h) { return same_text(*h.variant, *v); });
    if (same == out.end()) {
      Hypothesis& h = out.emplace_back();
      h.variant = v;
      h.from = v->block.from;
      continue;
    }
    same->from = std::min(same->from, v->block.from);
    if (v->block.unsure) same->variant = v;  // the bytes may be those of a time at which they are not sure
  }
  return out;
}

template <class Flow, class Types>
void Hypotheses<Flow, Types>::assume_text(State& s, const Hypothesis& h, Time clock_error) const {
  s.forced = h.variant;
  s.node = nullptr;
  if (h.from == kTimeMin) return;
  s.lo = std::max(s.lo, saturating_add(h.from, -clock_error));
  s.floor = std::max(s.floor, s.lo);
}

template <class Flow, class Types>
template <bool Emit>
Stop Hypotheses<Flow, Types>::idle(State& s) {
  if constexpr (!Emit) {
    if (!take_trial_block()) return Stop::kOut;
  }
  if (++s.idle_blocks <= (Emit ? kMaxIdleBlocks : kMaxIdleInTrial)) return Stop::kGo;
  if constexpr (Emit) {
    this->contradiction(s, "E-FLOW-003", [&] {
      return fmt::format("{} blocks from {:#x} on without use of the trace", kMaxIdleBlocks, s.ip);
    });
    s.idle_blocks = 0;
  }
  return Stop::kContradiction;
}

// A hypothesis has used trace.
template <class Flow, class Types>
Stop Hypotheses<Flow, Types>::compare(State& s, Trial& trial) {
  trial.end = s.decisions;
  trial.path = s.path;
  const uint64_t place = self().place_signature(s);
  const size_t index = trial.places.size();
  if (trial.other != nullptr && index < trial.other->size() && (*trial.other)[index] == place)
    return Stop::kMerged;
  const TimeKnown time_known = self().time_known(s);
  const uint64_t state = Flow::state_signature(s, place);
  if (const auto dead = dead_ends_.find(state);
      dead != dead_ends_.end() && time_known.knows_no_less_than(dead->second)) {
    trial.unsure = trial.unsure || dead_ends_unsure_;
    return Stop::kContradiction;
  }
  trial.places.push_back(place);
  trial.marks.push_back({state, time_known, s.path});
  return s.decisions >= trial.until ? Stop::kHorizon : Stop::kGo;
}

// Every way on from the states since `from` contradicts the trace. Of two dead ends of one signature the one
// that needs to know less of time counts for more states.
template <class Flow, class Types>
void Hypotheses<Flow, Types>::remember_dead_end(Trial& trial, size_t from) {
  for (size_t i = from; i < trial.marks.size(); ++i) {
    const auto& mark = trial.marks[i];
    const auto [dead, fresh] = dead_ends_.try_emplace(mark.state, mark.time_known);
    if (!fresh && dead->second.knows_no_less_than(mark.time_known)) dead.value() = mark.time_known;
  }
  dead_ends_unsure_ = dead_ends_unsure_ || trial.unsure;
  trial.open = trial.open || trial.unsure;
  trial.places.resize(from);
  trial.marks.resize(from);
}

// Inside a hypothesis: depth first. The first candidate that survives to the outer one's end decides it
// (`why` says how it ended). States from which everything failed are remembered, so that choices that make no
// difference are not tried in all combinations.
template <class Flow, class Types>
void Hypotheses<Flow, Types>::choose_nested(const State& s, const std::vector<Hypothesis>& hypotheses,
                                            bool unknown, Trial& trial, Stop& why) {
  for (const Hypothesis& h : hypotheses) {
    if (forks_left_ == 0 || trial.depth >= kMaxDepth) {
      why = Stop::kOut;  // too many to follow: not contradicted
      trial.end = s.decisions;
      return;
    }
    --forks_left_;
    const size_t fork = trial.places.size();
    // What was in doubt up to an address in the trace is no matter after it.
    const bool was_unsure = std::exchange(trial.unsure, s.unsure);
    State copy = s;
    self().assume(copy, h);
    ++trial.depth;
    const Stop stop = self().template walk<false>(copy, &trial);
    --trial.depth;
    trial.unsure = trial.unsure || copy.unsure;
    if (stop == Stop::kContradiction) remember_dead_end(trial, fork);
    trial.unsure = trial.unsure || was_unsure;
    if (stop == Stop::kContradiction) continue;
    if (&h != &hypotheses.back() || unknown) trial.untried = std::min(trial.untried, s.decisions);
    why = stop;
    return;
  }
  why = unknown ? Stop::kNoText : Stop::kContradiction;
  trial.end = s.decisions;
}

// What following the hypotheses of a choice has shown so far.
template <class Flow, class Types>
struct Hypotheses<Flow, Types>::Verdict {
  const Hypothesis* best = nullptr;  // the first that fits
  Trial best_trial;
  Stop best_stop = Stop::kContradiction;
  unsigned survivors = 0;
  bool all_meet = true;
  uint64_t met = 0;          // decision count up to which they differ
  bool same_path = true;     // up to where they meet the same addresses run
  bool open = false;         // there may be more than the candidates that are left
  bool none_goes_on = true;  // each is contradicted before the next address
};

// Follows one hypothesis of a choice, and compares it with the best one up to now.
template <class Flow, class Types>
void Hypotheses<Flow, Types>::follow(const State& s, const Hypothesis& h, Verdict& v) {
  Trial t;
  t.until = s.decisions + options_.horizon;
  if (v.best != nullptr) t.other = &v.best_trial.places;
  State copy = s;
  copy.path = 0;
  self().assume(copy, h);
  const Stop stop = self().template walk<false>(copy, &t);
  t.unsure = t.unsure || copy.unsure;
  v.open = v.open || t.open;
  if (stop == Stop::kContradiction) {
    v.none_goes_on = v.none_goes_on && copy.unsure;
    // What was changed unseen on the way, or here, may be what the trace contradicts.
    v.open = v.open || t.unsure;
    return;
  }
  ++v.survivors;
  const Trial& best = v.best_trial;
  if (v.best == nullptr || (v.best_stop == Stop::kNoText && stop != Stop::kNoText)) {
    v.all_meet = v.best == nullptr;
    v.best = &h;
    v.best_stop = stop;
    v.best_trial = std::move(t);
  } else if (t.untried != UINT64_MAX || t.unsure_at != SIZE_MAX || best.unsure_at <= t.places.size()) {
    // One path of this hypothesis meets one of the other. There are more, or it may have been another.
    v.all_meet = false;
  } else if (stop == Stop::kMerged) {
    v.met = std::max(v.met, t.end - 1);  // the same from what was used last
    // A choice on the best one's path is judged where it is taken: there it is in doubt no longer than here.
    v.same_path = v.same_path && best.untried >= t.end && t.path == best.marks[t.places.size()].path;
  } else if (stop == Stop::kSegmentEnd && v.best_stop == Stop::kSegmentEnd && t.end == best.end &&
             best.untried >= t.end) {
    v.met = std::max(v.met, t.end);
    v.same_path = v.same_path && t.path == best.path;
  } else {
    v.all_meet = false;
  }
}

template <class Flow, class Types>
const typename Types::Hypothesis* Hypotheses<Flow, Types>::judge(State& s,
                                                                 const std::vector<Hypothesis>& hypotheses,
                                                                 bool unknown) {
  start_trials();
  Verdict v;
  v.met = s.decisions;
  v.open = unknown;
  v.none_goes_on = unsure_ != Unsure::kAlways;
  for (const Hypothesis& h : hypotheses) follow(s, h, v);
  // A loop that uses no trace ends earlier where every turn asks what the text is.
  s.idle_blocks += (kTrialBlocks - trial_blocks_left_) / 16;
  if (v.best == nullptr && unknown && v.none_goes_on && hypotheses[0].is_of_text()) {
    this->contradiction(s, "E-TEXT-001", [&] {
      return text_with("what is known of ", s.ip, " does not fit the trace: something unknown was there");
    });
    return nullptr;
  }
  set_confidence(s, v, unknown);
  return v.best == nullptr ? hypotheses.data() : v.best;
}

template <class Flow, class Types>
void Hypotheses<Flow, Types>::set_confidence(State& s, const Verdict& v, bool unknown) {
  constexpr uint64_t kForGood = UINT64_MAX;  // until the next sync point or gap
  if (v.best == nullptr) {
    confidence_ = Confidence::kContradiction;
    confidence_until_ = kForGood;
    return;
  }
  // A choice inside a stretch that is in doubt itself is no surer than that, and proves nothing about time.
  const bool doubtful = in_doubt(s);
  const Confidence before = in_window(s) ? confidence_ : Confidence::kCertain;
  const uint64_t before_until = in_window(s) ? confidence_until_ : 0;
  if (v.survivors == 1 && unknown) followed_until_ = v.best_trial.end;
  if (v.survivors == 1 && !v.open) {
    confidence_ = Confidence::kProved;
    confidence_until_ = s.decisions + 1;
    if (!doubtful) {
      self().assume(s, *v.best);
      s.forced = nullptr;
    }
  } else if (v.survivors > 1 && v.all_meet && !v.open) {
    confidence_ = v.same_path ? Confidence::kEquivalent : Confidence::kAmbiguous;
    confidence_until_ = v.met + 1;
  } else {  // up to the next address in the trace
    confidence_ = Confidence::kAmbiguous;
    confidence_until_ = s.decisions + 1;
    s.unsure = true;
  }
  confidence_ = std::max(confidence_, before);
  confidence_until_ = std::max(confidence_until_, before_until);
}

template <class Flow, class Types>
template <bool Emit>
const typename Types::Hypothesis* Hypotheses<Flow, Types>::choose(State& s,
                                                                  const std::vector<Hypothesis>& hypotheses,
                                                                  bool unknown, Trial* trial, Stop& why) {
  if constexpr (Emit) return judge(s, hypotheses, unknown);
  choose_nested(s, hypotheses, unknown, *trial, why);
  return nullptr;
}

}  // namespace asof::walk
