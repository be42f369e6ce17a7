// A pipeline that goes on where others ended, over more of the same recording.
#pragma once
#include <vector>

#include "decoder/pipeline/pipeline.h"

namespace asof {

// As run_pipeline(). `reached`: by stream, the start of the last segment before the stream's range; start times are no
// earlier.
Result<void> continue_pipeline(const Capture& capture, const PipelineOptions& options,
                               const std::vector<Time>& reached, ChunkOrder order, ChunkConsumer& consumer,
                               const std::function<void(const PipelineProgress&)>& progress = {});

}  // namespace asof
