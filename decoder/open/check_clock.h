// Whether what a recording says of its trace's clock can be true. Records, attributes and manifests say it, and
// nothing else depends on it: a wrong one gives wrong times, and wrong text that is certain.
#pragma once
#include <span>
#include <string>

#include "decoder/aux/aux_streams.h"
#include "decoder/io/sideband_notices.h"
#include "decoder/model/capture.h"
#include "decoder/perf/perf_data.h"

namespace asof {

// MTC packets against TSC packets. Where they contradict the configuration, MTCs are not used (E-SIDE-521).
void check_mtcs(Capture& capture, NoticeBook& notices);

// The conversion from TSC to the clock of the records against the times of AUX records, and against the second
// one of the file (the one that fits is used). True: it is wrong, or one of both is (E-SIDE-522).
bool clock_contradicts(Capture& capture, const PerfData& data, std::span<const AuxRing> rings,
                       NoticeBook& notices);

// Of either machine: E-SIDE-522.
void report_clock(std::string reason, const std::string& path, NoticeBook& notices);

}  // namespace asof
