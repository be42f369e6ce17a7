// OpenCSD snapshot directories: snapshot.ini lists devices, trace.ini buffers and who wrote into them,
// devices have registers and memory dumps. Format: OpenCSD's specification "snapshot format" version 1,
// written by DS-5 and by board scripts; docs/formats.md.
#pragma once
#include <string>

#include "decoder/model/capture.h"

namespace asof {

// `path` is the directory or its snapshot.ini. Streams are the instruction sources that have trace; a buffer
// that cannot be read, and sources that are not of a core, become notices.
Result<Capture> open_ocsd_snapshot(const std::string& path, const CaptureOptions& options);

}  // namespace asof
