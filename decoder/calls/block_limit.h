// BlockLimit: a sink of a timeline that takes so many straight runs and no more. From then on they are counted where they
// are found, and nothing else is done with them.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>

#include "decoder/calls/timeline.h"

namespace asof {

struct BlockLimit {
  std::atomic<bool> full = false;  // set by the sink: it counts, and drops, each one that still comes
  uint64_t left_out = 0;           // that it was not given
};

// run_timeline() for such a sink.
Result<TimelineSummary> run_timeline_limited(const Capture& capture, const TimelineOptions& options,
                                             TimelineSink& sink, BlockLimit& limit,
                                             const std::function<void(const PipelineProgress&)>& progress);

}  // namespace asof
