// A board capture traced again: what its CPUs executed (its truth) is encoded a second time by the simulated
// trace unit, with another choice of packets, into a capture that keeps everything else of the recording byte
// for byte. Thus a real kernel's text and records can be decoded with timing that no available recording has.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <vector>

#include "tests/support/pt_tracer.h"

namespace asof::test {

struct ReencodeOptions {
  uint32_t psb_bytes = 16 * 1024;  // of trace between sync points, whose TSC is the only time
  bool return_compression = true;
};

struct ReencodedCpu {
  uint64_t runs = 0, instructions = 0;
  uint64_t syncs = 0;
  std::vector<uint8_t> trace;
};

// `board`: a folder with perf.data/ and truth/ of one kernel-only x86 recording. Text is what the start
// snapshot, the BPF images and the pokes' new bytes give at each run's time; an instruction that does not
// match the truth throws std::runtime_error, as does any other deviation from this description.
std::map<int, ReencodedCpu> reencode(const std::filesystem::path& board, const ReencodeOptions& options);

// Writes `directory` as a copy of board/perf.data with these traces; snapshots are links.
void write_reencoded(const std::filesystem::path& board, const std::map<int, ReencodedCpu>& cpus,
                     const std::filesystem::path& directory);

}  // namespace asof::test
