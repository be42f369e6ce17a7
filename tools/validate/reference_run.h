// Segments decoded by libipt or OpenCSD, in processes of their own: the libraries are not ours, and on input
// they do not expect they crash or do not end. What one of them cannot do costs a segment, not the
// validation.
#pragma once
#include <cstdint>
#include <map>
#include <utility>

#include "decoder/model/capture.h"
#include "decoder/pipeline/pipeline.h"
#include "tools/output/tally.h"

namespace asof {

struct ReferenceRun {
  struct Found {
    uint64_t instructions = 0, hash = 0;  // as IpHash
    bool gap = false;                     // the reference did not decode it completely
    Segment segment;
  };
  std::map<std::pair<size_t, size_t>, Found> segments;  // by stream and segment
  uint64_t failed = 0;                                  // the library crashed, or did not end
  uint64_t left_out = 0;                                // beyond the budget
};

// The segments that `options` picks, in order of time, up to `bytes` of trace.
Result<ReferenceRun> run_reference(const Capture& capture, const PipelineOptions& options, uint64_t bytes);

}  // namespace asof
