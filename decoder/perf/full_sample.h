// FullSample: all that a SAMPLE says, for those who print it.
#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "decoder/perf/records.h"

namespace asof {

struct FullSample : SampleRecord {
  struct Registers {
    uint64_t abi = 0;  // 0: none, 1: 32 bits, 2: 64 bits
    std::span<const uint8_t>
        values;  // u64 each, in the file's byte order, for the bits of the attribute's mask
  };
  Registers user_registers, interrupted_registers;
  std::optional<uint64_t> weight;  // all 64 bits: parts of it where WEIGHT_STRUCT says so
  std::optional<uint64_t> data_page_size, code_page_size;
};
// As parse_sample().
Result<FullSample> parse_full_sample(const Record& record);

}  // namespace asof
