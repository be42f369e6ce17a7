#include <algorithm>

#include "decoder/perf/record_types.h"
#include "tools/board/machine/machine_truth.h"

namespace asof::machine {

std::map<int, std::vector<SyncMark>> read_marks(const std::filesystem::path& log,
                                                const std::vector<int>& cpus) {
  std::map<int, std::vector<SyncMark>> marks;
  for (const int cpu : cpus) marks[cpu];  // also where a log is empty
  for_each_record(log, cpus, [&](int cpu, const LogRecord& r, uint64_t position) {
    if (is_mark(r, Mark::kSync)) marks[cpu].push_back({position, r.address});
  });
  return marks;
}

std::vector<TracePiece> recorded_pieces(std::span<const AuxBuffer> buffers,
                                        std::span<const AuxRecord> records) {
  std::vector<TracePiece> pieces;
  const bool one_thread =
      std::ranges::all_of(buffers, [&](const AuxBuffer& b) { return b.tid == buffers.front().tid; });
  for (auto it = buffers.begin(); it != buffers.end(); ++it) {
    const AuxBuffer& b = *it;
    // perf pads what it copies; the next buffer begins where the trace went on.
    const auto next = std::find_if(it + 1, buffers.end(), [&](const AuxBuffer& o) {
      return o.cpu == b.cpu && o.tid == b.tid && o.offset > b.offset;
    });
    const uint64_t limit =
        std::min(b.offset + b.bytes.size(), next == buffers.end() ? UINT64_MAX : next->offset);
    for (const AuxRecord& r : records) {
      // The record's own thread may be the one that ran before; a single thread needs no telling apart.
      if (b.cpu >= 0 ? r.id.cpu != b.cpu : !one_thread && r.id.tid != b.tid) continue;
      const uint64_t begin = std::max(b.offset, r.offset);
      const uint64_t end = std::min(limit, r.offset + r.size);
      if (begin >= end) continue;
      const bool of_thread = b.cpu < 0;
      pieces.push_back({of_thread ? r.id.cpu : b.cpu, begin, b.bytes.subspan(begin - b.offset, end - begin),
                        of_thread ? b.tid : -1});
    }
  }
  return pieces;
}

std::vector<TracePiece> trace_pieces(const PerfData& data) {
  const auto& info = data.auxtrace_info();
  // The driver of TRBE skips parts of the buffer and fills them with packets to be ignored (arm_trbe.c,
  // __trbe_pad_buf()): no AUX record has them.
  if (info && info->type == perf::kAuxtraceCsEtm)
    return recorded_pieces(data.aux_buffers(), data.aux_records());
  std::vector<TracePiece> pieces;
  for (const AuxBuffer& b : data.aux_buffers()) pieces.push_back({b.cpu, b.offset, b.bytes, -1});
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
