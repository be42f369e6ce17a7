// UserReturn: when, as perf estimates it, a thread was back in user space. A return has the time of the timing packet before it; perf adds
// two ticks for each instruction since then, at the core's ratio, and takes whatever follows to be no earlier. A sample in
// between is before the return, and was in the kernel.
#pragma once
#include <algorithm>
#include <optional>

#include "decoder/model/capture.h"
#include "tools/script/script_options.h"

namespace asof {

class UserReturn {
 public:
  explicit UserReturn(const Capture& capture)
      : clock_(trace_clock(capture)), ratio_(capture.x86.max_nonturbo) {}

  void ran(Time t, uint64_t instructions) {
    if (t != time_) since_ = 0;
    time_ = t;
    since_ += instructions;
  }
  // `cbr`: the core's ratio, 0 if it is not known.
  void back(Time t, uint64_t cbr) {
    if (!clock_ || t == kTimeMin || t != time_) return;
    const uint64_t ticks = ratio_ == 0 || cbr == 0 ? 2 * since_ : 2 * since_ * ratio_ / cbr;
    const auto ns = static_cast<unsigned __int128>(ticks) * clock_->mult >> clock_->shift;
    not_before_ = std::max(not_before_, saturating_add(t, static_cast<Time>(ns)));
  }
  Time of(Time t) const { return std::max(t, not_before_); }

 private:
  std::optional<TimeConversion> clock_;
  uint64_t ratio_;
  Time time_ = kTimeMin, not_before_ = kTimeMin;
  uint64_t since_ = 0;  // instructions since the timing packet of `time_`
};

}  // namespace asof
