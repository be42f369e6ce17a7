#include "decoder/perf/record_types.h"
#include "tools/board/machine/machine_truth.h"

namespace asof::machine {

std::map<int, std::vector<SyncMark>> read_marks(const std::filesystem::path& log,
                                                const std::vector<int>& cpus) {
  std::map<int, std::vector<SyncMark>> marks;
  for (const int cpu : cpus) {
    auto& own = marks[cpu];
    CpuLog records(log_file(log, cpu));
    LogRecord r;
    uint64_t position = 0;
    while (records.next(r, position)) {
      if (r.code == kLogMark && r.first == static_cast<uint16_t>(Mark::kSync))
        own.push_back({position, r.address});
    }
  }
  return marks;
}

std::vector<TracePiece> trace_pieces(const PerfData& data) {
  std::vector<TracePiece> pieces;
  for (const AuxBuffer& b : data.aux_buffers()) pieces.push_back({b.cpu, b.offset, b.bytes});
  return pieces;
}

TimeConversion clock_of(const PerfData& data) {
  TimeConversion clock;
  const auto& record = data.time_conv();
  if (!record) {
    // Without TIME_CONV, AUXTRACE_INFO of Intel PT says it: type, shift, mult, zero.
    const auto& info = data.auxtrace_info();
    if (info && info->type == perf::kAuxtraceIntelPt && info->priv.size() > 4 && info->priv[2] != 0) {
      clock.shift = static_cast<uint16_t>(info->priv[1]);
      clock.mult = static_cast<uint32_t>(info->priv[2]);
      clock.zero = info->priv[3];
    }
    return clock;
  }
  clock.shift = static_cast<uint16_t>(record->shift);
  clock.mult = static_cast<uint32_t>(record->mult);
  clock.zero = record->zero;
  if (record->cap_short) clock.cycles = record->cycles, clock.mask = record->mask, clock.cap_short = true;
  return clock;
}

}  // namespace asof::machine
