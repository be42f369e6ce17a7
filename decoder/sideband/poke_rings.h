// Which CPUs' changes of kernel text a perf recording has: perf_event_text_poke() writes its record to the
// rings of the CPU that makes the change, so changes by a CPU without an event that requests them
// (attr.text_poke) are not recorded.
#pragma once
#include <cstdint>

#include "decoder/perf/perf_data.h"

namespace asof {

struct PokeRings {
  bool asked = false;  // requested by any event
  size_t rings = 0;    // with an event that requests pokes
  uint32_t cpus = 0;   // online when recorded (HEADER_NRCPUS); 0: unknown

  bool all() const { return asked && cpus != 0 && rings >= cpus; }
  // Only the changes of some CPUs, or of some threads, were recorded, or may have been.
  bool some_missing() const { return asked && !all(); }
};

// An event of a thread alone (perf record --per-thread) gets that thread's own changes only, and does not
// count.
PokeRings poke_rings(const PerfData& data);

}  // namespace asof
