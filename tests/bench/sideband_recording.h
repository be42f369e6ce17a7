// A recording of a whole busy machine that is mostly side-band records, for measuring how it is opened.
#pragma once
#include <cstdint>
#include <filesystem>

namespace asof::test {

struct SidebandSpec {
  uint64_t megabytes = 100;  // of records, before compression
  unsigned cpus = 8;
  unsigned processes = 1000;  // alive at any time
  unsigned modules = 500;
  bool packed = false;  // as `perf record -z` writes it
};

// Writes a directory as `perf record --kcore -a` does. The same spec gives the same bytes. Records are in order
// of time within a CPU's part of a round, and rounds of CPUs overlap, as perf drains one ring after another.
void write_sideband_recording(const std::filesystem::path& to, const SidebandSpec& spec);

}  // namespace asof::test
