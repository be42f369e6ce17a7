// Definitions of Hypotheses: which text can be at a place, and when. For the one source file of each machine
// that instantiates them.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "arch/walk/hypothesis.h"

namespace asof::walk {

// The likeliest instant within b. Where tracing stops before the upper end, most of the interval is that
// pause.
inline Time likeliest(TimeBounds b, bool pause) {
  if (b.lo == kTimeMin) return b.hi;
  if (b.hi == kTimeMax || pause) return b.lo;
  return std::midpoint(b.lo, b.hi);
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
        this->contradiction(s, Code::kNoProcess, [&] {
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
  uint64_t work = 0;
  for (const Space space : spaces) {
    Node* n = cache_->node(space, s.ip, s.mode);
    if (n->only != nullptr) {
      known.push_back(n->only);
    } else if (n->state == TextState::kVersioned) {
      if (!find_candidates<Emit>(*n, self().text_bounds(s))) {
        why = Stop::kOut;
        return nullptr;
      }
      work += candidates_.work;
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
  if (hypotheses.size() > 1) {
    if constexpr (Emit) work_.take(work);
    h = choose<Emit>(s, hypotheses, unknown, trial, why);
  }
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

template <class Flow, class Types>
void Hypotheses<Flow, Types>::distrust_text(State& s) {
  if (is_kernel_address(s.ip) || !s.in_user) return;
  const Cell cell = text_.cell(s.user_space, s.ip);
  for (const Version& v : cell.possible_in(self().bounds(s))) {
    if (v.bytes != nullptr) this->distrust(v.origin);
  }
}

// No file's text leads to where nothing is mapped. (Code that a JIT wrote may lead to code that it did not record.)
template <class Flow, class Types>
void Hypotheses<Flow, Types>::doubt_text_before(const State& s) {
  const Block* const before = this->user_text_before(s.ip);
  if (before == nullptr || !text_.cell(before->space, s.ip).versions.empty()) return;
  if (is_poke(before->origin)) return;
  const OriginKind kind = text_.origin(before->origin).kind;
  if (kind != OriginKind::kFile && kind != OriginKind::kVdso) return;
  this->distrust(before->origin);
  this->doubt_since_address();
}

// No bytes are known at s.ip; `ever`: at other times there are some.
template <class Flow, class Types>
template <bool Emit>
Variant<typename Types::Isa>* Hypotheses<Flow, Types>::no_text(State& s, Node& node, bool ever, Stop& why) {
  if (Variant* v = self().unrecorded_text(s, node)) return v;
  if constexpr (Emit) {
    doubt_text_before(s);
    this->contradiction(s, Code::kNoBytes, [&] {
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
    this->contradiction(s, Code::kNotAnInstruction, [&] {
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
bool Hypotheses<Flow, Types>::find_candidates(Node& node, TimeBounds b) {
  if (!Emit && work_.spent()) return false;
  cache_->candidates(node, b, candidates_);
  if (Emit) return true;  // counted where there is a choice: the fast walk passes over the rest
  // One that time leaves alone is not looked for again (Node::recent), in other segments as well: it must not count
  // here either.
  const auto& known = candidates_.known;
  const bool settled = known.size() == 1 && !candidates_.unknown && known[0]->alone_from <= b.lo &&
                       b.hi <= known[0]->alone_until;
  if (!settled) work_.take(candidates_.work);
  return true;
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
  if (!find_candidates<Emit>(node, b)) {
    why = Stop::kOut;
    return nullptr;
  }
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
  if constexpr (Emit) work_.take(candidates_.work);
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

}  // namespace asof::walk
