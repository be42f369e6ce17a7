// What Perfetto knows of a machine apart from tracks: the kernel, and which thread ran on which CPU, as the
// scheduler's own events, from which it makes the tracks of scheduling and of threads' states.
#pragma once
#include "decoder/calls/timeline.h"
#include "decoder/model/capture.h"
#include "tools/timeline/perfetto_packets.h"

namespace asof {

void write_system(const Capture& capture, PerfettoPackets& out);
// `release`: of the kernel; what a state is called depends on it.
void write_sched(const Timeline& timeline, const std::string& release, PerfettoPackets& out);

}  // namespace asof
