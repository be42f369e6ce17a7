#include "tools/output/chunk_window.h"

#include <algorithm>

namespace asof {
namespace {

bool has(const TimeBounds& time, Time t) { return t == kTimeMin || (t >= time.lo && t <= time.hi); }

bool is_wholly_within(const Chunk& chunk, const TimeBounds& time) {
  const StepList& steps = chunk.steps;
  const bool inside = steps.empty() || (has(time, steps.time_at(0)) &&
                                        has(time, steps.time_at(static_cast<uint32_t>(steps.size() - 1))));
  return inside && std::ranges::all_of(chunk.events, [&](const Event& e) { return has(time, e.time); }) &&
         std::ranges::all_of(chunk.gaps, [&](const Gap& g) { return is_within(g, time); });
}

}  // namespace

std::optional<Chunk> chunk_within(const Chunk& chunk, const TimeBounds& time) {
  if (time == TimeBounds{} || is_wholly_within(chunk, time)) return std::nullopt;
  Chunk out;
  out.stream = chunk.stream;
  out.segment = chunk.segment;
  out.last = chunk.last;
  out.segment_start = chunk.segment_start;
  size_t event = 0, gap = 0;
  // What stands before entry `position`.
  const auto before = [&](size_t position) {
    const auto now = static_cast<uint32_t>(out.steps.size());
    for (; event < chunk.events.size() && chunk.events[event].step <= position; ++event) {
      if (!has(time, chunk.events[event].time)) continue;
      out.events.push_back(chunk.events[event]);
      out.events.back().step = now;
    }
    for (; gap < chunk.gaps.size() && chunk.gaps[gap].step <= position; ++gap) {
      if (!is_within(chunk.gaps[gap], time)) continue;
      out.gaps.push_back(chunk.gaps[gap]);
      out.gaps.back().step = now;
    }
  };
  for (auto it = chunk.steps.begin(); it != chunk.steps.end(); ++it) {
    before(it.position());
    if (has(time, it->time)) out.steps.push_back(*it);
  }
  before(SIZE_MAX);
  return out;
}

}  // namespace asof
