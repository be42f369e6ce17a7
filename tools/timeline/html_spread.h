// Where things are drawn. A trace has the time only now and then; of what ran between two such instants the
// order is known, not the time. Drawn at the instants themselves, most calls would have no width and lie upon
// each other, so they are spread over the time until the next instant, by their instructions, in the order
// they ran. The times themselves are not changed: the view shows the interval.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "decoder/calls/timeline.h"

namespace asof {

// Units of the picture in a nanosecond (in captures without a clock: in an instruction).
inline constexpr uint64_t kHtmlUnit = 16;

struct Span {  // in units after the beginning of the timeline
  uint64_t begin = 0, end = 0;
};

struct TimelineSpread {
  std::vector<Span> slices;                     // as Timeline::slices
  std::vector<Span> blocks;                     // as Timeline::blocks
  std::map<int32_t, std::vector<Time>> points;  // by CPU: the instants in its trace, sorted

  explicit TimelineSpread(const Timeline& timeline);
};

// Units after the beginning; times outside of the timeline are its ends.
uint64_t html_position(const TimelineSummary& summary, Time t);

}  // namespace asof
