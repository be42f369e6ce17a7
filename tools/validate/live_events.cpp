#include "tools/validate/live_events.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/output/format.h"

namespace asof {
namespace {

uint64_t distance(Time a, Time b) {
  return a > b ? static_cast<uint64_t>(a) - static_cast<uint64_t>(b)
               : static_cast<uint64_t>(b) - static_cast<uint64_t>(a);
}

}  // namespace

LiveEvents::LiveEvents(const Capture& capture, const SideBand& side)
    : capture_(capture), recognizer_(capture) {
  const auto pokes = capture.text->pokes();
  events_.reserve(pokes.size() + side.ksymbols.size());
  for (uint32_t i = 0; i < pokes.size(); ++i)
    events_.push_back({pokes[i].time, pokes[i].addr, i, What::kPoke, recognizer_.poke(pokes[i]).mechanism});
  for (const KsymbolFact& k : side.ksymbols) {
    if (k.time == kTimeMin) continue;
    events_.push_back({k.time, k.range.begin, 0, k.unregister ? What::kUnload : What::kLoad,
                       k.type == KsymbolFact::kBpf ? Mechanism::kBpf : Mechanism::kOutOfLine});
  }
  std::ranges::stable_sort(events_, {}, &Event::time);
}

size_t LiveEvents::nearest(Time t, size_t from) const {
  while (from > 0 && events_[from].time > t) --from;
  while (from + 1 < events_.size() && distance(events_[from + 1].time, t) <= distance(events_[from].time, t))
    ++from;
  return from;
}

size_t LiveEvents::classify(Time t, size_t& cursor) const {
  if (events_.empty() || t == kTimeMin) return kNothingNear;
  cursor = nearest(t, std::min(cursor, events_.size() - 1));
  if (distance(events_[cursor].time, t) > kNear) return kNothingNear;
  return static_cast<size_t>(events_[cursor].mechanism);
}

std::string_view LiveEvents::class_name(size_t index) {
  return index == kNothingNear ? "nothing near" : mechanism_name(static_cast<Mechanism>(index));
}

std::string LiveEvents::describe(Time t) const {
  if (events_.empty() || t == kTimeMin) return {};
  const auto after = std::ranges::lower_bound(events_, t, {}, &Event::time);
  const size_t at = nearest(t, static_cast<size_t>(std::min(after, events_.end() - 1) - events_.begin()));
  const Event& e = events_[at];
  const uint64_t away = distance(e.time, t);
  if (away > kNear) return {};
  std::string who = e.what == What::kLoad ? "registration" : "unregistration";
  if (e.what == What::kPoke) {
    const Recognized r = recognizer_.poke(capture_.text->pokes()[e.poke]);
    who = fmt::format("poke #{} ({}{}{})", e.poke + 1, mechanism_name(r.mechanism),
                      r.action.empty() ? "" : ", ", r.action);
  }
  const auto symbol = capture_.symbols.find(kKernelSpace, e.addr, e.time);
  return fmt::format("{} {} {} at {:x}{}", format_duration(away), e.time <= t ? "after" : "before", who,
                     e.addr,
                     symbol ? fmt::format(" ({}+{:#x})", symbol->symbol->shown(), symbol->offset) : "");
}

}  // namespace asof
