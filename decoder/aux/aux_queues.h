// Queues: which AUX buffers and AUX records belong to one ring. The word is perf's
// (tools/perf/util/auxtrace.c, struct auxtrace_queue). Private to make_streams().
#pragma once
#include <cstdint>
#include <vector>

#include "decoder/perf/perf_data.h"

namespace asof {

struct AuxQueue {
  uint32_t idx = 0;
  std::vector<const AuxBuffer*> buffers;  // file order
  std::vector<const AuxRecord*> records;  // in order of offset, then of the file
  Time started = kTimeMax;                // first ITRACE_START; kTimeMax: none, or one before it may be lost
  bool start_lost = false;                // records of its CPU were lost before any ITRACE_START
  bool overlapping = false;               // buffers are snapshots or AUX samples
};

// One ring per CPU (and not per thread), as AUXTRACE_INFO of Intel PT says. True where nothing says so.
bool per_cpu_rings(const PerfData& data);

// Queues by idx. LOST records, and AUX records of no queue, are reported in `notices`.
std::vector<AuxQueue> collect_queues(const PerfData& data, std::vector<Notice>& notices);

// Order in the ring, then in the file. Of AuxBuffer and AuxRecord.
template <class T>
bool comes_before(const T* a, const T* b) {
  return a->offset != b->offset ? a->offset < b->offset : a->file_offset < b->file_offset;
}

}  // namespace asof
