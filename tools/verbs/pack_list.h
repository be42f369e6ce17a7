// What a capture needs to be decoded on another machine: every file that decoding uses, with its name in the
// archive. Layout: docs/formats.md, "Packed captures".
#pragma once
#include <string>
#include <vector>

#include "decoder/io/sideband_notices.h"
#include "decoder/model/capture.h"

namespace asof {

struct PackedFile {
  std::string name;  // in the archive
  std::string path;  // here
};

// By name, each once. `path` and `options` are those the capture was opened with. What a recording mapped and
// this machine does not have is reported by opening the capture, not here.
std::vector<PackedFile> files_of(const Capture& capture, const std::string& path,
                                 const CaptureOptions& options);

}  // namespace asof
