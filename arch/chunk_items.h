// The gaps and events of a chunk, in the order in which they happened.
#pragma once
#include "arch/arch.h"

namespace asof {

// Of a chunk that stays as it is meanwhile.
class ChunkItems {
 public:
  explicit ChunkItems(const Chunk& chunk) : chunk_(&chunk) {}

  // Those in front of the entry `index` of the steps that were not given yet.
  template <class OnGap, class OnEvent>
  void before(size_t index, const OnGap& on_gap, const OnEvent& on_event) {
    while (has_before(index)) {
      if (gap_is_next())
        on_gap(chunk_->gaps[gap_++]);
      else
        on_event(take_event());
    }
  }
  bool has_before(size_t index) const {
    return (gap_ < chunk_->gaps.size() && chunk_->gaps[gap_].step <= index) ||
           (event_ < chunk_->events.size() && chunk_->events[event_].step <= index);
  }
  // The entry that the next one is in front of; SIZE_MAX: there is none.
  size_t next_at() const {
    const size_t gap = gap_ < chunk_->gaps.size() ? chunk_->gaps[gap_].step : SIZE_MAX;
    const size_t event = event_ < chunk_->events.size() ? chunk_->events[event_].step : SIZE_MAX;
    return gap < event ? gap : event;
  }
  // Passes over those in front of all steps.
  void skip_first() {
    while (gap_ < chunk_->gaps.size() && chunk_->gaps[gap_].step == 0) ++gap_;
    while (event_ < chunk_->events.size() && chunk_->events[event_].step == 0) take_event();
  }
  // Passes over the next ones that are such events.
  template <class Predicate>
  void skip_events(const Predicate& is_such) {
    while (event_ < chunk_->events.size() && !(gap_ < chunk_->gaps.size() && gap_is_next()) &&
           is_such(chunk_->events[event_]))
      take_event();
  }
  size_t events_taken() const { return event_; }

 private:
  bool gap_is_next() const {
    if (gap_ == chunk_->gaps.size()) return false;
    if (event_ == chunk_->events.size()) return true;
    const Gap& gap = chunk_->gaps[gap_];
    const Event& event = chunk_->events[event_];
    if (gap.step != event.step) return gap.step < event.step;
    return gap.after <= (entry_ == event.step ? taken_ : 0);
  }
  const Event& take_event() {
    const Event& e = chunk_->events[event_++];
    if (entry_ != e.step) {
      entry_ = e.step;
      taken_ = 0;
    }
    ++taken_;
    return e;
  }

  const Chunk* chunk_;
  size_t gap_ = 0, event_ = 0;
  size_t entry_ = SIZE_MAX;  // of the last event
  uint32_t taken_ = 0;       // events in front of that entry
};

}  // namespace asof
