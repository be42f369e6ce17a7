// Trace buffers of an OpenCSD snapshot, ready to be split by source.
#pragma once
#include <memory>
#include <string>

#include "decoder/coresight/cs_frames.h"
#include "decoder/ocsd/ocsd_ini.h"
#include "textstore/result.h"

namespace asof {

struct OcsdBuffer {
  std::string name, path;
  bool raw = false;  // bytes of one source, without frames
  FrameAlignment alignment = FrameAlignment::kMemory;
  FrameSection section;
  std::shared_ptr<const void> owner;  // of the bytes
};

// The buffer of section `section_name` of trace.ini. Formats: "source_data", "coresight" (frames in memory),
// "dstream_coresight" (frames of a trace port in blocks of 512 bytes, the last 8 of which are the probe's).
Result<OcsdBuffer> open_ocsd_buffer(const IniFile& trace, std::string_view section_name);

}  // namespace asof
