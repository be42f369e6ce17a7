// CoreFile: a capture that was parsed once, kept in a file for any number of processes (core_format.h). What is read
// back decodes as the capture itself does; the trace is read from where it was.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "decoder/core/core_format.h"
#include "decoder/model/capture.h"
#include "decoder/model/image.h"

namespace asof {

class CoreFile {
 public:
  using Write = std::function<void(std::span<const uint8_t>)>;
  // Writes the core of `capture` for a plan in `folder`. Fails where the trace is in no file (E-FILE-153).
  static Result<void> write(const Capture& capture, const std::string& folder, const Write& write);

  static bool is_plan(const std::string& folder);
  // The capture of the plan in `folder`. With CaptureOptions::shards only streams with trace in those shards have
  // their trace and tasks.
  static Result<Capture> open(const std::string& folder, const CaptureOptions& options);

  // Of the recording, as block streams of it have it (block_format.h).
  uint64_t identity() const { return identity_; }
  // Of the core itself: two plans with one hash are the same.
  uint64_t hash() const { return hash_; }
  std::span<const StreamExtent> extents() const { return extents_; }
  std::span<const std::string> names() const { return names_; }  // of the streams

 private:
  struct Part {
    core::Section kind{};
    uint32_t index = 0;
    std::span<const uint8_t> bytes;
    uint64_t hash = 0;
  };
  Result<void> read_table(std::span<const uint8_t> bytes);
  bool has_section(core::Section kind, uint32_t index) const;
  Result<std::span<const uint8_t>> section(core::Section kind, uint32_t index = 0) const;
  Result<void> read_streams(Capture& capture, const CaptureOptions& options);
  std::unexpected<Error> damaged(std::string reason) const;

  std::string path_;
  std::shared_ptr<const MappedFile> file_;
  std::vector<Part> parts_;
  uint64_t identity_ = 0, hash_ = 0;
  std::vector<StreamExtent> extents_;
  std::vector<std::string> names_;
  std::vector<std::shared_ptr<const void>> owners_;  // of trace
};

}  // namespace asof
