// Gaps as the walk of one machine opens and closes them.
#pragma once
#include <string_view>

#include "arch/reason.h"
#include "arch/walk/segment_log.h"

namespace asof::walk {

// Flow has, for its State:
//   static Time display_time(const State&)   the last time passed
//   uint64_t offset_in_use(const State&)     of the packet in use, in the segment's bytes
//   static bool trace_ended(const State&)    nothing in the trace says whether the flow came this far
//   void lose_sync(State&)                   from here on where the flow is is not known
//   void after_gap(State&)                   a gap was closed
//   void distrust_text(State&)               the trace contradicts the text at s.ip
template <class Flow, class State>
// NOLINTNEXTLINE(bugprone-crtp-constructor-accessibility): Hypotheses is between this and Flow.
class Gaps : protected SegmentLog {
 protected:
  // `why` is the reason, or gives it when it is called: a gap that goes on already has one.
  template <class Why>
  void open_gap(State& s, Code code, const Why& why, uint64_t begin) {
    Gap* const gap = open(s, code);
    if (gap == nullptr) return;
    gap->begin = segment_->begin + begin;
    gap->reason = reason_of(why);
  }

  void close_gap(State& s, Addr resume_ip, uint64_t end) {
    if (SegmentLog::close_gap(resume_ip, end, Flow::display_time(s))) self().after_gap(s);
  }

  // The flow cannot go on at s.ip. What the packets say next stays pending: it is where the flow may resume.
  // Where trace and text disagree, what ran since the last packet that fitted is not known either; where only
  // bytes are missing, it is.
  template <class Why>
  void contradiction(State& s, Code code, const Why& why) {
    if (family_of(code) == CodeFamily::kFlow) {
      roll_back();
      if (code != Code::kTooMuchWork) {
        if (code != Code::kReturnWithoutItsCall) self().distrust_text(s);
        doubt_since_address();
      }
    }
    lose(s, code, why);
  }

  // From here on where the flow is is not known.
  template <class Why>
  void lose(State& s, Code code, const Why& why) {
    if (Flow::trace_ended(s)) doubt_unconfirmed();
    verify();
    if (Gap* const gap = open(s, code)) {
      gap->begin = segment_->begin + self().offset_in_use(s);
      gap->reason = reason_of(why);
    }
    self().lose_sync(s);
  }

 private:
  Flow& self() { return static_cast<Flow&>(*this); }
  Gap* open(State& s, Code code) {
    return new_gap(code, s.ip, s.lo == kTimeMin ? Flow::display_time(s) : s.lo);
  }
};

}  // namespace asof::walk
