// LLDB's post-mortem Intel PT bundles (`trace save`): trace.json with processes, modules and either one trace
// per thread or one trace and one context-switch ring per CPU. Schema: `trace schema intel-pt` of LLDB.
#pragma once
#include <string>

#include "decoder/model/capture.h"

namespace asof {

// Errors E-FILE-1xx name the key or the file they are about.
Result<Capture> open_lldb_bundle(const std::string& path, const CaptureOptions& options);

}  // namespace asof
