#include "tools/script/pebs_blocks.h"

#include "decoder/perf/record_types.h"
#include "decoder/perf/records.h"
#include "tools/script/script_event_names.h"
#include "tools/script/script_options.h"

namespace asof {
namespace {

constexpr uint64_t kAuxOutput = 1U << 31U, kFrequency = 1U << 10U;  // perf_event_attr: bits of its flags
// Types of blocks, and items in them.
constexpr uint64_t kRegisters = 1, kBasic = 4, kMemory = 5;
constexpr uint64_t kRegisterIp = 1, kIp = 0, kCounters = 1, kTimestamp = 2, kAddress = 0, kLatency = 2;

}  // namespace

PebsBlocks::PebsBlocks(const Capture& capture, const Stream& stream) : capture_(capture) {
  if (!capture.perf) return;
  const auto events = capture.perf->attrs();
  size_t count = 0;
  for (size_t i = 0; i < events.size(); ++i) {
    if ((events[i].flags & kAuxOutput) == 0) continue;
    ++count;
    only_ = i;
  }
  if (count != 0) {
    periods_ = recorded_periods(*capture.perf);
    for (size_t i = 0; i < events.size(); ++i) {
      if ((events[i].flags & kFrequency) != 0) periods_[i] = 1;
    }
  }
  if (count < 2) return;
  only_.reset();
  capture.perf->for_each({perf::kAuxOutputHwId}, [&](const Record& record) {
    const auto counter = parse_aux_output_hw_id(record);
    const bool here = stream.cpu < 0 || record.id.cpu == stream.cpu;
    if (counter && here && record.id.attr != nullptr && *counter < 64)
      by_counter_[static_cast<unsigned>(*counter)] = static_cast<size_t>(record.id.attr - events.data());
    return true;
  });
}

void PebsBlocks::item(uint64_t id, uint64_t value) {
  PebsGroup& g = *group_;
  if (kind_ == kRegisters && id == kRegisterIp) g.register_ip = value;
  if (kind_ == kBasic && id == kIp) g.ip = value;
  if (kind_ == kBasic && id == kCounters) g.counters = value;
  if (kind_ == kBasic && id == kTimestamp) g.timestamp = value;
  if (kind_ == kMemory && id == kAddress) g.addr = value;
  if (kind_ == kMemory && id == kLatency) g.latency = value;
}

std::optional<size_t> PebsBlocks::event_of(uint64_t counters) const {
  if (only_) return only_;
  for (const auto& [counter, event] : by_counter_) {
    if ((counters >> counter & 1U) != 0) return event;
  }
  return std::nullopt;
}

std::optional<PebsBlocks::Sample> PebsBlocks::take(const Event& e) {
  if (e.kind == EventKind::kBbp) {
    if (!group_) group_.emplace();
    kind_ = e.a;
    return std::nullopt;
  }
  if (!group_) return std::nullopt;  // its beginning is lost
  if (e.kind == EventKind::kBip) {
    item(e.b, e.a);
    return std::nullopt;
  }
  const PebsGroup g = *group_;
  group_.reset();
  const auto event = event_of(g.counters);
  if (!event) return std::nullopt;
  Sample out{.event = *event,
             .time = e.time,
             .ip = g.ip.value_or(g.register_ip.value_or(e.ip)),
             .addr = g.addr,
             .period = periods_[*event],
             .latency = g.latency};
  if (const auto& clock = trace_clock(capture_); g.timestamp && clock)
    out.time = clock->to_perf(*g.timestamp);
  return out;
}

}  // namespace asof
