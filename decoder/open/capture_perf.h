// perf.data to Capture.
#pragma once
#include <string>

#include "decoder/io/sideband_notices.h"
#include "decoder/kernel_text/kernel_text.h"
#include "decoder/model/capture.h"

namespace asof {

// `path` is a file, a folder of `perf record --kcore` or --threads, or "-".
Result<Capture> open_perf(const std::string& path, const CaptureOptions& options);

// Intel PT configuration of a recording: AUXTRACE_INFO (tools/perf/arch/x86/util/intel-pt.c
// intel_pt_info_fill()), the CPUID feature, TIME_CONV, and the event's config (IA32_RTIT_CTL).
x86::Config perf_config(const PerfData& data);

// The conversion from TSC to perf's clock of AUXTRACE_INFO, which TIME_CONV says again.
std::optional<TimeConversion> info_conversion(const PerfData& data);

// Streams of CoreSight trace, the configuration of their trace units, and what converts their timestamps to
// perf's clock.
void add_cs_streams(Capture& capture, const PerfData& data, const CaptureOptions& options,
                    NoticeBook& notices);

// Changes of arm64 kernel text from what the recording has of them besides TEXT_POKE records, and the
// catalogue when it is requested (`vmlinux`: KernelText::find_vmlinux(), for its jump table). Reports which
// sources exist.
void add_arm64_text(Capture& capture, const PerfData& data, const CaptureOptions& options,
                    const KernelText& kernel, const SideBand& side, const TextFile* vmlinux, Builder& builder,
                    NoticeBook& notices);

}  // namespace asof
