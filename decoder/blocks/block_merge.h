// Parts of a plan put together to one block stream. What is merged may be merged again with more: parts are put in the
// order of what they have, each once, so the result depends on the set of parts alone.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "decoder/blocks/block_format.h"
#include "decoder/model/capture.h"
#include "decoder/model/image.h"

namespace asof::blocks {

class PartMerger {
 public:
  using Write = std::function<void(std::span<const uint8_t>)>;
  // Of the recording with this identity.
  explicit PartMerger(uint64_t identity) : identity_(identity) {}

  // All parts in the files, every record of which is checked, of several files at once. A file is refused as a whole
  // (E-FILE-154) where something in it is of another recording, was decoded with other options than the parts before, has
  // not been written to its end, or is damaged. One result for each path; parts are taken in the order of the paths.
  std::vector<Result<void>> add(std::span<const std::string> paths);

  size_t parts() const { return parts_.size(); }
  size_t repeated() const { return repeated_; }  // that were there already
  // Shards that no part is of: those of `count` that are not there, where all parts are of one cut.
  std::vector<Shard> missing() const;
  // The description of the recording, then all parts.
  void write(const Capture& capture, const Write& write) const;

 private:
  struct Part {
    PartCoverage coverage;
    std::string file;
    uint64_t offset = 0;
    std::span<const uint8_t> bytes;
    size_t added = 0;  // by which file, counted
  };
  struct PartsOfFile {
    std::shared_ptr<const MappedFile> file;
    std::vector<Part> parts;
  };
  class Reader;
  Result<void> take(PartsOfFile read);
  Result<void> keep(Part part);

  uint64_t identity_;
  std::vector<std::shared_ptr<const MappedFile>> files_;
  std::vector<Part> parts_;  // sorted by what they have
  size_t repeated_ = 0;
};

}  // namespace asof::blocks
