// Where kprobes were whose hits the recording has: the recording itself proves that the word there was replaced.
#pragma once
#include <set>

#include "decoder/perf/perf_data.h"
#include "textstore/address.h"

namespace asof {

std::set<Addr> recorded_probes(const PerfData& data);

}  // namespace asof
