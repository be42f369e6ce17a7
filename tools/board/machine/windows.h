// Which parts of what a trace unit wrote a recording holds. perf may copy all of it, only tails (snapshots, AUX
// samples, --overwrite), or leave parts out (losses); a position is a number of bytes that the unit had written.
//
// Where a buffer of the recording lies is found by its sync points: each is a mark of the log, with its position
// and its time (if the trace has times).
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace asof::machine {

// A PSB or A-Sync that a unit wrote.
struct SyncMark {
  uint64_t position = 0;
  uint64_t time = 0;  // of its TSC packet; 0: it has none
};

// One stretch of trace in a recording.
struct TracePiece {
  int cpu = -1;         // -1: of any
  uint64_t offset = 0;  // in the ring, as the recording says
  std::span<const uint8_t> bytes;
  int tid = -1;  // whose ring, with --per-thread
};

// [begin, end) of what CPU `cpu` wrote; begins at a sync point, or where the window before it ends.
struct Window {
  uint64_t begin = 0, end = 0;
  bool operator==(const Window&) const = default;
};

struct FoundSync {
  size_t offset = 0;
  std::optional<uint64_t> time;
};
// Sync points of Intel PT: PSBs, and the TSC that stands in their PSB+.
std::vector<FoundSync> find_psbs(std::span<const uint8_t> bytes);
// Sync points of ETE and ETM without frames: A-Syncs. They have no time of their own.
std::vector<FoundSync> find_async(std::span<const uint8_t> bytes);

struct WindowReport {
  std::map<int, std::vector<Window>> windows;  // by CPU, in order, none overlapping or touching another
  uint64_t pieces = 0, unplaced = 0;           // of the recording; no CPU's marks agree with them
};

// `marks`: by CPU. `pt`: Intel PT, else ETE. `written`: by CPU, all that its unit wrote, where it was kept; then
// trace without times is placed by its bytes, and else by the distances between its sync points.
WindowReport find_windows(std::span<const TracePiece> pieces,
                          const std::map<int, std::vector<SyncMark>>& marks, bool pt,
                          const std::map<int, std::span<const uint8_t>>& written = {});

}  // namespace asof::machine
