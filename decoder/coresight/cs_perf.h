// CoreSight in perf.data: which trace units there are (AUXTRACE_INFO of cs_etm, AUX_OUTPUT_HW_ID), and one
// Stream for each of them out of the AUX rings. Layouts: tools/perf/util/cs-etm.h and cs-etm.c,
// include/linux/coresight-pmu.h; docs/formats.md.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "arch/arm64/arm64.h"
#include "arch/stream.h"
#include "decoder/io/sideband_notices.h"
#include "decoder/perf/perf_data.h"
#include "textstore/result.h"

namespace asof {

class CsFrameMemory;

// The trace unit of one CPU.
struct CsUnit {
  int32_t cpu = -1;
  arm64::Source source;
  bool has_trace_id = false;  // source.trace_id is one
  // What the timestamps count; kUnknown: recorded before perf said so.
  enum class Clock : uint8_t { kUnknown, kVirtual, kOther };
  Clock clock = Clock::kUnknown;
};

// Units of an AUXTRACE_INFO of type 3, header versions 0, 1 and 2. What is beyond the last word is left out
// and reported.
Result<std::vector<CsUnit>> read_cs_units(const AuxtraceInfo& info, NoticeBook& notices);

// Streams and, at the same index, the units that made them.
struct CsStreams {
  std::vector<Stream> streams;
  std::vector<CsUnit> units;
};
// `memory`: of a recording that grows.
CsStreams make_cs_streams(const PerfData& data, NoticeBook& notices, CsFrameMemory* memory = nullptr);

}  // namespace asof
