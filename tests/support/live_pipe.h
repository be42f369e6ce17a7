// A finished recording as the pipe that perf writes while it records: the same records, ring by ring and round by
// round, with the trace of each round. AUX records are cut at sync points, as if the AUX buffers were small.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "decoder/model/capture.h"

namespace asof::test {

struct LivePipe {
  std::vector<uint8_t> bytes;
  std::vector<size_t> round_ends;  // in bytes
  // The same as a file: what it begins with while perf writes it, from where on it has the pipe's records, and with
  // what it begins and ends when perf has ended.
  std::vector<uint8_t> file_begin, finished_begin, file_end;
  size_t data_begin = 0;  // in bytes
};

// `skew`: rings are read so much (ns) after each other within a round. `frames`: of CoreSight trace without frames, with
// them.
LivePipe as_live_pipe(const std::string& path, size_t rounds, const CaptureOptions& options = {},
                      Time skew = 0, bool frames = false);

}  // namespace asof::test
