// Opens and decodes a capture in this process as the program does, and keeps the result in memory: for
// captures small enough to compare instruction by instruction.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "decoder/model/capture.h"
#include "decoder/pipeline/pipeline.h"
#include "tests/support/truth.h"

namespace asof::test {

struct DecodedInstruction {
  Addr ip = 0;
  Time time = kTimeMin;
  Confidence confidence = Confidence::kCertain;
  bool after_gap = false;  // something before it is missing
  uint8_t length = 0;
  std::vector<uint8_t> bytes() const { return {data.begin(), data.begin() + length}; }
  std::array<uint8_t, 15> data{};
};

struct DecodedStream {
  std::string name;
  int cpu = -1;
  std::vector<DecodedInstruction> instructions;
  std::vector<Gap> gaps;
  std::vector<Event> events;
};

struct DecodedCapture {
  Capture capture;
  std::vector<DecodedStream> streams;
};

Result<DecodedCapture> decode_capture(const std::string& path, const CaptureOptions& capture = {},
                                      const PipelineOptions& pipeline = {});

// The differences between decoded and executed instructions, found by following both and resynchronising
// after each difference.
struct Difference {
  uint64_t right = 0, wrong = 0, missing = 0;
  std::array<uint64_t, 5> wrong_by_confidence{};
  std::string first;  // the first difference, for the test's message
  std::vector<Addr> missing_ips;
};
Difference compare(std::span<const DecodedInstruction> got, std::span<const Executed> want);

}  // namespace asof::test
