#include "tools/output/chunk_window.h"

#include <algorithm>

#include "arch/chunk_items.h"

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
  out.segment_begin = chunk.segment_begin;
  out.segment_end = chunk.segment_end;
  ChunkItems items(chunk);
  // What stands before entry `position`.
  const auto before = [&](size_t position) {
    const auto now = static_cast<uint32_t>(out.steps.size());
    items.before(
        position,
        [&](const Gap& gap) {
          if (!is_within(gap, time)) return;
          Gap& g = out.gaps.emplace_back(gap);
          g.step = now;
          g.after = 0;
          for (auto e = out.events.rbegin(); e != out.events.rend() && e->step == now; ++e) ++g.after;
        },
        [&](const Event& event) {
          if (!has(time, event.time)) return;
          out.events.push_back(event);
          out.events.back().step = now;
        });
  };
  for (auto it = chunk.steps.begin(); it != chunk.steps.end(); ++it) {
    before(it.position());
    if (has(time, it->time)) out.steps.push_back(*it);
  }
  before(SIZE_MAX);
  return out;
}

}  // namespace asof
