#include "decoder/kernel_text/recorded_probes.h"

#include <map>
#include <utility>

#include "decoder/perf/perf_data_impl.h"
#include "decoder/perf/records.h"
#include "decoder/perf/trace_formats.h"

namespace asof {

// Both kinds of probe name the address in their samples (kernel/trace/trace_kprobe.c).
std::set<Addr> recorded_probes(const PerfData& data) {
  constexpr uint32_t kTracepoint = 2;  // PERF_TYPE_TRACEPOINT
  constexpr int kFeatureTracingData = 1;
  std::map<uint32_t, TraceEvent> events;
  for (TraceEvent& event : read_trace_formats(data.feature(kFeatureTracingData))) {
    const uint32_t id = event.id;
    if (event.field("__probe_ip") != nullptr || event.field("__probe_func") != nullptr)
      events.emplace(id, std::move(event));
  }
  std::set<Addr> out;
  if (events.empty()) return out;
  data.for_each({perf::kSample}, [&](const Record& record) {
    const PerfAttr* attr = record.id.attr;
    if (attr == nullptr || attr->type != kTracepoint) return true;
    const auto event = events.find(static_cast<uint32_t>(attr->config));
    if (event == events.end()) return true;
    const auto sample = parse_sample(record);
    if (!sample) return true;
    if (const auto at = event->second.value({"__probe_ip", "__probe_func"}, sample->raw, record.swapped))
      out.insert(*at);
    return true;
  });
  return out;
}

}  // namespace asof
