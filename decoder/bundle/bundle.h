// The raw bundle: a trace without perf.data, described by a JSON manifest. Format: docs/bundle.md.
#pragma once
#include <string>

#include "decoder/model/capture.h"

namespace asof {

// Opens a manifest of format "asof-bundle", version 1. Errors E-FILE-1xx name the key or the file they are
// about.
Result<Capture> open_bundle(const std::string& path, const CaptureOptions& options);

}  // namespace asof
