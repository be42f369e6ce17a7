// The files and folders that options name.
#pragma once
#include "decoder/model/capture.h"
#include "tools/output/diagnostics.h"

namespace asof {

// False: one of them is not there, cannot be read or is of the wrong kind; that was printed, and the verb ends
// with kExitInput. A folder without what its option looks for is only warned of.
bool check_named_paths(const CaptureOptions& options, Diagnostics& diagnostics);

}  // namespace asof
