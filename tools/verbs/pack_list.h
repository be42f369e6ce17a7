// What a capture needs to be decoded on another machine: every file that decoding uses, with its name in the
// archive. Layout: docs/formats.md, "Packed captures".
//
// An archive is given away, and a capture may come from somebody else: it chooses names of files, and could so
// choose what is carried off this machine. Only these are packed: what an option names, what is below the
// capture's own folder or symfs once links are followed, and files whose build-id is the recorded one.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "decoder/io/files_read.h"
#include "decoder/io/sideband_notices.h"
#include "decoder/model/capture.h"

namespace asof {

struct PackedFile {
  std::string name;  // in the archive
  std::string path;  // here
};

struct PackList {
  std::vector<PackedFile> files;  // by name, each once
  // Used in decoding, but not packed: path and reason.
  std::vector<std::pair<std::string, std::string>> refused;
};

// `path` and `options` are those the capture was opened with, `read` what opening it read. What a recording mapped
// and this machine does not have is reported by opening the capture, not here.
PackList files_of(const Capture& capture, const std::string& path, const CaptureOptions& options,
                  const std::vector<FileState>& read);

}  // namespace asof
