// FollowedFile: a perf.data file that perf is still writing, as the pipe that perf would write instead. Its header says
// how much data there is only when perf has ended; until then attributes are known, and header features are not.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "decoder/io/descriptor.h"
#include "decoder/perf/perf_data.h"
#include "textstore/result.h"

namespace asof {

// Header features of a recording of the same machine that do not depend on what is recorded: its architecture, the
// number of its CPUs, which CPU it is.
using MachineFeatures = std::vector<std::pair<int, std::vector<uint8_t>>>;
MachineFeatures machine_features(const PerfData& other);

class FollowedFile {
 public:
  // `path`: the file, or a directory with `data` in it.
  static Result<FollowedFile> open(const std::string& path, MachineFeatures features);

  // Is anybody writing to it? True where the system does not say.
  bool is_written() const;
  // The next bytes of the pipe; 0: there are no more now.
  Result<size_t> read(std::span<uint8_t> out);
  // Nothing comes any more: perf has written its header, or nobody has the file open for writing.
  bool ended() const { return ended_; }

 private:
  FollowedFile(Descriptor file, std::string path, MachineFeatures features)
      : file_(std::move(file)), path_(std::move(path)), features_(std::move(features)) {}
  Result<bool> begin();
  std::vector<uint8_t> bytes_at(uint64_t at, uint64_t size) const;
  uint64_t size() const;

  Descriptor file_;
  std::string path_;
  MachineFeatures features_;
  bool begun_ = false, ended_ = false;
  std::vector<uint8_t> head_;  // not given yet
  uint64_t at_ = 0;            // of the file
};

}  // namespace asof
