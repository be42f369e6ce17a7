// The truth of a recording that was made in a validation machine: from the plugin's log and the recording, what
// `asof validate --truth` compares with (docs/usage.md, "Truth").
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "arch/time_conversion.h"
#include "decoder/perf/perf_data.h"
#include "tools/board/machine/log_reader.h"
#include "tools/board/machine/windows.h"

namespace asof::machine {

struct CpuTruth {
  uint64_t instructions = 0, user_instructions = 0, runs = 0, hash = 0;
  uint64_t outside = 0;  // executed and traced, but not in the recording's trace
  uint64_t lost = 0;     // executed while the trace unit could write nothing
  uint64_t late = 0;     // in runs whose bytes are nowhere in the recording
  std::vector<Window> windows;
  uint64_t ends = 0;  // windows that end where tracing was switched off, so nothing of them is missing
};

// Writes `file` (cpu<N>.blocks.zst): what the windows of the recording can show. `known`: whether code has bytes in the
// recording.
CpuTruth write_cpu_truth(const std::filesystem::path& log, int cpu, const CodeTable& code,
                         const std::vector<Window>& windows, const TimeConversion& clock,
                         const std::filesystem::path& file,
                         const std::function<bool(Addr, std::span<const uint8_t>)>& known);

// Trace that follows a thread over the CPUs (--per-thread).
struct ThreadPiece {
  std::optional<uint64_t> tsc;  // when it begins
  uint64_t bytes = 0;
};
struct ThreadTrace {
  int tid = -1;
  std::vector<ThreadPiece> pieces;
};
std::vector<ThreadTrace> thread_traces(const PerfData& data);

struct ThreadTruth {
  CpuTruth truth;
  uint64_t moves = 0;     // to another CPU
  uint64_t unplaced = 0;  // pieces that no CPU wrote
};
// Writes tid<N>.blocks.zst into `folder`.
ThreadTruth write_thread_truth(const std::filesystem::path& log, const std::vector<int>& cpus,
                               const CodeTable& code, const ThreadTrace& thread, const TimeConversion& clock,
                               const std::filesystem::path& folder,
                               const std::function<bool(Addr, std::span<const uint8_t>)>& known);

// Kernel text that was found changed when it was translated anew. `time`: when the new bytes ran first, if that was
// traced.
struct Poke {
  Time time = kTimeMin;
  int cpu = -1;
  Addr address = 0;
  std::vector<uint8_t> before, after;
};
std::vector<Poke> find_pokes(const std::filesystem::path& log, const std::vector<int>& cpus,
                             const CodeTable& code, const TimeConversion& clock);
void write_pokes(const std::filesystem::path& file, const std::vector<Poke>& pokes);

// Sync points of all CPUs in the log.
std::map<int, std::vector<SyncMark>> read_marks(const std::filesystem::path& log,
                                                const std::vector<int>& cpus);
std::vector<TracePiece> trace_pieces(const PerfData& data);
// What AUX records say is trace, of each buffer in the order of the records; in the ring of a thread, of the CPU that
// wrote it.
std::vector<TracePiece> recorded_pieces(std::span<const AuxBuffer> buffers,
                                        std::span<const AuxRecord> records);
// perf's clock of the CPU's counter; the counter itself where the recording does not tell (-k).
TimeConversion clock_of(const PerfData& data);

}  // namespace asof::machine
