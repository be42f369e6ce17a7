// A decoder of Intel PT that finds which edges ran, for fuzzers. None has a package: see tests/bench/CMakeLists.txt.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "decoder/model/capture.h"

namespace asof::bench {

class CoveragePeer {
 public:
  CoveragePeer() = default;
  CoveragePeer(const CoveragePeer&) = delete;
  CoveragePeer& operator=(const CoveragePeer&) = delete;
  virtual ~CoveragePeer() = default;
  // Why it stopped before the end; empty: it did not. The trace has kPadding bytes more behind its end.
  virtual std::string decode(std::span<uint8_t> trace) = 0;
  static constexpr size_t kPadding = 16;
};

constexpr size_t kCoverageMap = 0x10000;

// The space of the first stream's user code.
inline Space user_space_of(const Capture& capture) {
  const auto& contexts = capture.streams.at(0).contexts;
  return contexts.empty() ? kKernelSpace : contexts[0].space;
}

std::unique_ptr<CoveragePeer> new_libxdc(const Capture& capture);
std::unique_ptr<CoveragePeer> new_iptr(const Capture& capture);

}  // namespace asof::bench
