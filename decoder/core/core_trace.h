// Where the trace of a capture is: files, streams, pieces, CoreSight frames. The trace itself stays in its files.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "decoder/core/core_format.h"
#include "decoder/coresight/cs_frames.h"
#include "decoder/model/capture.h"
#include "decoder/model/image.h"

namespace asof::core {

// Sections kFiles, kFrames, kStream of all streams. `folder`: of the core; files below its parent are found again
// where the whole is moved.
struct TraceSections {
  Writer files, frames, extents;
  std::vector<Writer> streams;
  std::vector<std::optional<Writer>> indexes;  // of frames, by group
};
Result<TraceSections> put_trace(const Capture& capture, const std::string& folder);

// A file that holds trace, as the core knows it.
struct TraceFile {
  std::string path, beside;  // absolute; relative to the core's folder
  uint64_t size = 0, hash = 0;
};

// Opens what streams need of their files.
class TraceReader {
 public:
  // `index`: section kFrameIndex of a group of frames, which may be missing.
  using Index = std::function<Result<std::optional<std::span<const uint8_t>>>(uint32_t group)>;
  TraceReader(std::string folder, Index index) : folder_(std::move(folder)), index_(std::move(index)) {}
  // Sections kFiles and kFrames. False: damaged.
  bool read_tables(std::span<const uint8_t> files, std::span<const uint8_t> frames);
  // Section kStream.
  Result<Stream> read_stream(std::span<const uint8_t> body, const std::string& where);
  // What spans point into.
  std::vector<std::shared_ptr<const void>> take_owners() { return std::move(owners_); }

 private:
  struct Place {
    uint32_t file = 0;
    uint64_t offset = 0, size = 0;
  };
  struct OneSource {
    std::shared_ptr<const TraceBytes> bytes;  // nullptr: there is none
    uint64_t size = 0;
  };
  struct FrameGroup {
    FrameAlignment alignment = FrameAlignment::kMemory;
    std::vector<FrameSection> sections;  // without bytes
    std::vector<Place> places;           // of each one's bytes
    std::shared_ptr<const CsFrames> frames;
    std::map<uint8_t, OneSource> sources;  // that were asked for
  };
  Result<std::span<const uint8_t>> bytes_at(const Place& place);
  Result<std::shared_ptr<const MappedFile>> file(uint32_t index);
  Result<void> open_group(uint32_t index);
  std::shared_ptr<const CsFrames> read_index(std::span<const uint8_t> body, FrameGroup& group) const;
  Result<OneSource> source(uint64_t group, uint8_t id);
  Result<void> read_piece(Source& in, StreamPiece& piece);
  bool read_frames(std::span<const uint8_t> body);

  std::string folder_;
  Index index_;
  std::vector<TraceFile> files_;
  std::vector<std::shared_ptr<const MappedFile>> open_;  // by file
  std::vector<FrameGroup> groups_;
  std::vector<std::shared_ptr<const void>> owners_;
};

}  // namespace asof::core
