// A second, independent count of what `asof validate --truth` counts: nothing of tools/ is used. It keeps all
// of one CPU in memory and ignores times. A stretch of decoded instructions between two gaps must be found in
// the truth without a hole; of all placements of the stretches in their order, the one with the fewest wrong
// instructions counts.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "decoder/model/capture.h"

namespace asof::test {

struct TruthCount {
  uint64_t right = 0, wrong = 0;
  uint64_t missing = 0;  // includes code whose bytes are not in the capture
  uint64_t wrong_certain = 0, wrong_proved = 0;
  bool operator==(const TruthCount&) const = default;
};

// An executed straight stretch, as truth/cpu<N>.blocks.zst has it.
struct ExecutedRun {
  Addr ip = 0;
  uint32_t bytes = 0, count = 0;
};

// What was decoded for one CPU.
struct DecodedFlow {
  std::vector<Addr> ips;
  std::vector<uint8_t> lengths;      // bytes, of each instruction
  std::vector<uint8_t> confidences;  // Confidence
  std::vector<size_t> islands;       // indices of instructions after a gap, or the first
};

TruthCount count_against(const DecodedFlow& flow, const std::vector<ExecutedRun>& truth);

// Decodes the capture and counts each CPU that has a cpu<N>.blocks.zst in the directory.
std::map<int, TruthCount> count_capture(const std::string& path, const CaptureOptions& options,
                                        const std::string& truth_directory, TextAt text_at = TextAt::kAsof);

}  // namespace asof::test
