// Which executed code has bytes anywhere in a recording. What has none is late text: no decoder could know it.
#pragma once
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "decoder/model/image.h"
#include "decoder/perf/perf_data.h"
#include "textstore/address.h"

namespace asof::machine {

class KnownBytes {
 public:
  // Reads the records once, and the copy of kcore of a recording that is a directory.
  explicit KnownBytes(const PerfData& data);

  // Kernel: each byte is that of the copy of kcore, of a change, or of a program's image, whenever that was. User: some
  // mapping of a file or of the vDSO has this address, or code was written there that a jitdump file may have.
  bool has(Addr address, std::span<const uint8_t> bytes) const;

 private:
  void add(Addr address, std::span<const uint8_t> bytes);
  bool has_byte(Addr address, uint8_t byte) const;

  std::shared_ptr<const ElfImage> kcore_;
  bool kernel_known_ = false;                          // there is a copy of kcore to compare with
  std::unordered_map<Addr, std::vector<uint8_t>> at_;  // of changes and images
  std::vector<AddrRange> mapped_;
};

}  // namespace asof::machine
