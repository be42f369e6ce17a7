#include "decoder/model/task_of.h"

#include <algorithm>
#include <span>

namespace asof {
namespace {

uint64_t apart(Time from, Time to) { return static_cast<uint64_t>(to) - static_cast<uint64_t>(from); }

}  // namespace

const ContextChange* task_of(const Stream& stream, Time t, Space space, const ContextChange* by_time) {
  constexpr std::ptrdiff_t kMostChanges = 64;  // examined on either side
  if (space == kKernelSpace || by_time == nullptr || by_time->space != kNoSpace) return by_time;
  const std::span all(stream.contexts);
  const std::ptrdiff_t at = by_time - all.data(), size = std::ssize(all);
  const ContextChange *later = nullptr, *earlier = nullptr;
  Time left = kTimeMin;  // when the earlier one went
  for (std::ptrdiff_t i = at; i < std::min(size, at + kMostChanges) && later == nullptr; ++i) {
    if (space != kNoSpace && all[i].space == space) later = &all[i];
  }
  for (std::ptrdiff_t i = at; i-- > std::max<std::ptrdiff_t>(0, at - kMostChanges) && earlier == nullptr;) {
    if (space != kNoSpace && all[i].space == space) earlier = &all[i], left = all[i + 1].time;
  }
  if (later == nullptr || earlier == nullptr) return later != nullptr ? later : earlier;
  return apart(t, later->time) < apart(left, t) ? later : earlier;
}

}  // namespace asof
