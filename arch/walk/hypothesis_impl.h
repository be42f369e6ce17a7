// Definitions of Hypotheses: how candidates are followed and judged. For the one source file of each machine
// that instantiates them.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "arch/walk/hypothesis.h"

namespace asof::walk {

// Blocks walked without using trace: beyond this the text has an endless loop that no CPU runs (E-FLOW-003).
inline constexpr uint32_t kMaxIdleBlocks = 1 << 16;
inline constexpr uint32_t kMaxIdleInTrial = 1 << 12;  // a hypothesis is given less

template <class Flow, class Types>
template <bool Emit>
Stop Hypotheses<Flow, Types>::idle(State& s) {
  if constexpr (!Emit) {
    if (!take_trial_block()) return Stop::kOut;
  }
  if (++s.idle_blocks <= (Emit ? kMaxIdleBlocks : kMaxIdleInTrial)) return Stop::kGo;
  if constexpr (Emit) {
    this->contradiction(s, Code::kRunaway, [&] {
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
  const uint64_t position = self().position_signature(s);
  const size_t index = trial.positions.size();
  if (trial.other != nullptr && index < trial.other->size() && (*trial.other)[index] == position)
    return Stop::kMerged;
  const TimeKnown time_known = self().time_known(s);
  const uint64_t state = Flow::state_signature(s, position);
  if (const auto dead = dead_ends_.find(state);
      dead != dead_ends_.end() && time_known.knows_no_less_than(dead->second)) {
    trial.unsure = trial.unsure || dead_ends_unsure_;
    return Stop::kContradiction;
  }
  if (const auto end = unknown_ends_.find(state);
      end != unknown_ends_.end() && time_known.knows_no_less_than(end->second))
    return Stop::kNoText;
  trial.positions.push_back(position);
  trial.marks.push_back({state, time_known, s.path});
  return s.decisions >= trial.until ? Stop::kHorizon : Stop::kGo;
}

// Every way on from the states since `from` ends so. Of two ends of one signature the one that needs to know
// less of time counts for more states.
template <class Flow, class Types>
void Hypotheses<Flow, Types>::remember_end(Ends& ends, Trial& trial, size_t from) {
  for (size_t i = from; i < trial.marks.size(); ++i) {
    const auto& mark = trial.marks[i];
    const auto [end, fresh] = ends.try_emplace(mark.state, mark.time_known);
    if (!fresh && end->second.knows_no_less_than(mark.time_known)) end.value() = mark.time_known;
  }
  trial.positions.resize(from);
  trial.marks.resize(from);
}

// Inside a hypothesis: depth first. The first candidate that survives to the outer one's end decides it
// (`why` says how it ended); one that comes to where nothing is known only where none goes on. States from
// which everything failed are remembered, so that choices that make no difference are not tried in all
// combinations.
template <class Flow, class Types>
void Hypotheses<Flow, Types>::choose_nested(const State& s, const std::vector<Hypothesis>& hypotheses,
                                            bool unknown, Trial& trial, Stop& why) {
  bool into_unknown = unknown;
  for (const Hypothesis& h : hypotheses) {
    if (forks_left_ == 0 || trial.depth >= kMaxDepth) {
      why = Stop::kOut;  // too many to follow: not contradicted
      trial.end = s.decisions;
      return;
    }
    --forks_left_;
    const size_t fork = trial.positions.size(), taken = trial.taken.size();
    // What was in doubt up to an address in the trace is no matter after it.
    const bool was_unsure = std::exchange(trial.unsure, s.unsure);
    State copy = s;
    self().assume(copy, h);
    trial.taken.push_back({s.decisions, s.ip, h.variant});
    ++trial.depth;
    const Stop stop = self().template walk<false>(copy, &trial);
    --trial.depth;
    trial.unsure = trial.unsure || copy.unsure;
    if (stop == Stop::kContradiction) {
      dead_ends_unsure_ = dead_ends_unsure_ || trial.unsure;
      trial.open = trial.open || trial.unsure;
      remember_end(dead_ends_, trial, fork);
    } else if (stop == Stop::kNoText) {
      remember_end(unknown_ends_, trial, fork);
      into_unknown = true;
    }
    trial.unsure = trial.unsure || was_unsure;
    if (stop == Stop::kContradiction || stop == Stop::kNoText) {
      trial.taken.resize(taken);
      continue;
    }
    if (&h != &hypotheses.back() || into_unknown) trial.untried = std::min(trial.untried, s.decisions);
    why = stop;
    return;
  }
  if (into_unknown) trial.untried = std::min(trial.untried, s.decisions);
  why = into_unknown ? Stop::kNoText : Stop::kContradiction;
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
  if (v.best != nullptr) t.other = &v.best_trial.positions;
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
  const bool further = v.best_stop == Stop::kNoText && (stop != Stop::kNoText || t.end > best.end);
  if (v.best == nullptr || further) {
    v.all_meet = v.best == nullptr;
    v.best = &h;
    v.best_stop = stop;
    v.best_trial = std::move(t);
  } else if (t.untried != UINT64_MAX || best.untried < t.end || t.unsure_at != SIZE_MAX ||
             best.unsure_at <= t.positions.size()) {
    // One path of this hypothesis meets one of the other. There are more, or it may have been another. Nor can
    // a choice on the best one's path be left to be judged when the flow gets there: that is done with what
    // the best one knows of time, and what it then rules out may be where this hypothesis goes on.
    v.all_meet = false;
  } else if (stop == Stop::kMerged) {
    v.met = std::max(v.met, t.end - 1);  // the same from what was used last
    v.same_path = v.same_path && t.path == best.marks[t.positions.size()].path;
  } else if (stop == Stop::kSegmentEnd && v.best_stop == Stop::kSegmentEnd && t.end == best.end) {
    v.met = std::max(v.met, t.end);
    v.same_path = v.same_path && t.path == best.path;
  } else {
    v.all_meet = false;
  }
}

template <class Flow, class Types>
void Hypotheses<Flow, Types>::give_up(State& s) {
  this->contradiction(s, Code::kTooMuchWork, [&] {
    return fmt::format("what runs at {:#x} was not decided: the text can have changed in too many ways",
                       s.ip);
  });
}

template <class Flow, class Types>
const typename Types::Hypothesis* Hypotheses<Flow, Types>::judge(State& s,
                                                                 const std::vector<Hypothesis>& hypotheses,
                                                                 bool unknown) {
  if (work_.spent()) {
    give_up(s);
    return nullptr;
  }
  start_trials();
  Verdict v;
  v.met = s.decisions;
  v.open = unknown;
  v.none_goes_on = unsure_ != Unsure::kAlways;
  for (const Hypothesis& h : hypotheses) follow(s, h, v);
  if (work_.spent()) {
    give_up(s);
    return nullptr;
  }
  // A loop that uses no trace ends earlier where every turn asks what the text is.
  s.idle_blocks += (kTrialBlocks - trial_blocks_left_) / 16;
  if (v.best == nullptr && unknown && v.none_goes_on && hypotheses[0].is_of_text()) {
    this->contradiction(s, Code::kNoBytes, [&] {
      return text_with("what is known of ", s.ip, " does not fit the trace: something unknown was there");
    });
    return nullptr;
  }
  set_confidence(s, v, unknown);
  if (v.best == nullptr) return hypotheses.data();
  if (s.unsure) plan(s, v);
  return v.best;
}

// What is chosen while the flow is in doubt is no surer for being judged by itself: it only has to be likely. The
// first half of the way that was followed is: the other half fits as well. Judged one by one, where each function
// can have changed, choices cost as much as all that follows each.
template <class Flow, class Types>
void Hypotheses<Flow, Types>::plan(const State& s, Verdict& v) {
  const uint64_t followed = v.best_trial.end - s.decisions;
  planned_until_ = v.best_stop == Stop::kSegmentEnd ? v.best_trial.end + 1 : s.decisions + followed / 2;
  plan_ = std::move(v.best_trial.taken);
  plan_at_ = 0;
}

// The one that the plan has for this place.
template <class Flow, class Types>
const typename Types::Hypothesis* Hypotheses<Flow, Types>::planned(
    const State& s, const std::vector<Hypothesis>& hypotheses) {
  if (!s.unsure || s.decisions >= planned_until_ || !hypotheses[0].is_of_text()) return nullptr;
  while (plan_at_ < plan_.size() && plan_[plan_at_].decisions < s.decisions) ++plan_at_;
  for (size_t i = plan_at_; i < plan_.size() && plan_[i].decisions == s.decisions; ++i) {
    if (plan_[i].ip != s.ip) continue;
    plan_at_ = i + 1;
    const auto same = std::ranges::find_if(
        hypotheses, [&](const Hypothesis& h) { return same_text(*h.variant, *plan_[i].variant); });
    return same == hypotheses.end() ? nullptr : &*same;
  }
  return nullptr;
}

template <class Flow, class Types>
void Hypotheses<Flow, Types>::set_confidence(State& s, const Verdict& v, bool unknown) {
  constexpr uint64_t kForGood = UINT64_MAX;  // until the next sync point or gap
  // A choice inside a stretch that is in doubt itself is no surer than that, and proves nothing about time.
  const bool doubtful = in_doubt(s);
  const Confidence before = in_window(s) ? confidence_ : Confidence::kCertain;
  const uint64_t before_until = in_window(s) ? confidence_until_ : 0;
  if (v.best == nullptr) {
    // Where the flow may have gone another way, or over other text, nothing more than that is wrong. Else the
    // recording does not show all that happened.
    s.unsure = s.unsure || v.open;
    confidence_ = Confidence::kContradiction;
    confidence_until_ = s.unsure ? std::max(before_until, s.decisions + 1) : kForGood;
    return;
  }
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
  if constexpr (Emit) {
    if (const Hypothesis* const h = planned(s, hypotheses)) {
      if (!in_window(s)) confidence_ = Confidence::kAmbiguous;
      confidence_ = std::max(confidence_, Confidence::kAmbiguous);
      confidence_until_ = std::max(confidence_until_, s.decisions + 1);
      return h;
    }
    return judge(s, hypotheses, unknown);
  }
  choose_nested(s, hypotheses, unknown, *trial, why);
  return nullptr;
}

}  // namespace asof::walk
