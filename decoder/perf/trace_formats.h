// Formats of tracepoints as perf stores them (feature TRACING_DATA): the position of each field in a sample's
// raw bytes. Container: tools/perf/util/trace-event-read.c; the text of one event:
// kernel/trace/trace_events.c f_show().
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace asof {

struct TraceField {
  std::string name;
  uint32_t offset = 0, size = 0;
  bool is_signed = false;
};

struct TraceEvent {
  std::string system, name;
  uint32_t id = 0;  // perf_event_attr.config of its samples
  std::vector<TraceField> fields;

  const TraceField* field(std::string_view name) const;
  // The first of several names; integers of 1, 2, 4 or 8 bytes, sign extended where the format says so.
  std::optional<uint64_t> value(std::initializer_list<std::string_view> names, std::span<const uint8_t> raw,
                                bool swapped) const;
};

// Events of the feature's body. What cannot be read is left out: samples of it are then of an unknown event.
std::vector<TraceEvent> read_trace_formats(std::span<const uint8_t> body);

}  // namespace asof
