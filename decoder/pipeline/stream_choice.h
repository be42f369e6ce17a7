// Which trace of which streams PipelineOptions ask for.
#pragma once
#include <optional>

#include "decoder/pipeline/pipeline.h"

namespace asof {

// nullopt: nothing of this stream, the `index`th.
std::optional<StreamRange> chosen_range(const Stream& stream, size_t index, const PipelineOptions& options);
// Bytes of trace in it.
uint64_t bytes_within(const Stream& stream, const StreamRange& range);

}  // namespace asof
