// libipt's instruction flow decoder over a trace: the reference that shows whether a written trace agrees
// with its truth.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "textstore/address.h"

namespace asof::test {

struct LibiptConfig {
  uint8_t mtc_freq = 0;
  uint32_t tsc_ctc_n = 0, tsc_ctc_d = 0;
  uint8_t nominal = 0;  // for CYC calibration
};

struct LibiptResult {
  std::vector<Addr> ips;
  std::vector<std::string> errors;  // "offset: message"
  uint64_t overflows = 0;
};

// Fills `out` with the bytes at `addr` as of `tsc` (libipt's time); returns how many.
using ReadText = std::function<size_t(Addr addr, std::span<uint8_t> out, uint64_t tsc)>;

LibiptResult libipt_decode(std::span<const uint8_t> trace, const LibiptConfig& config, const ReadText& read);

}  // namespace asof::test
