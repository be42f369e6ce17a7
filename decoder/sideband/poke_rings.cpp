#include "decoder/sideband/poke_rings.h"

#include <algorithm>

#include "decoder/aux/aux_queues.h"
#include "decoder/perf/record_types.h"

namespace asof {
namespace {

constexpr uint64_t kWantsTextPoke = 1ULL << 33U;  // perf_event_attr.text_poke

}  // namespace

PokeRings poke_rings(const PerfData& data) {
  PokeRings out;
  out.cpus = data.nr_cpus();
  const auto& info = data.auxtrace_info();
  const bool per_cpu = !info || info->type != perf::kAuxtraceIntelPt || per_cpu_rings(data);
  for (const PerfAttr& attr : data.attrs()) {
    if ((attr.flags & kWantsTextPoke) == 0) continue;
    out.asked = true;
    if (per_cpu) out.rings = std::max(out.rings, attr.ids.size());
  }
  return out;
}

}  // namespace asof
