// The ETM part of a raw bundle: trace units' registers and the counter's relation to perf's clock. Format:
// docs/bundle.md.
#pragma once
#include <optional>

#include "arch/arm64/arm64.h"
#include "decoder/bundle/bundle_json.h"
#include "textstore/result.h"

namespace asof {

// "etm" of a stream, over "etm" of the bundle, over the values of a core with 64-bit addresses and nothing
// optional switched on.
Result<arm64::Source> read_bundle_etm(const std::optional<JsonView>& bundle, const JsonView& stream);

// "time_shift", "time_mult" and "time_zero" of an object: all, or none (nullopt).
Result<std::optional<TimeConversion>> read_bundle_time(const JsonView& object);

}  // namespace asof
