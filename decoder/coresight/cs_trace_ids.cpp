#include "decoder/coresight/cs_trace_ids.h"

#include <fmt/format.h>

#include "decoder/perf/perf_data_impl.h"
#include "decoder/perf/records.h"

namespace asof {
namespace {

constexpr uint32_t kOnlySink = 0;

// Fields of the hardware ID, from bit `low` on.
constexpr uint64_t field(uint64_t value, unsigned low, unsigned bits) {
  return (value >> low) & ((1ULL << bits) - 1);
}

}  // namespace

CsTraceIds::CsTraceIds(const PerfData& data, std::vector<CsUnit>& units, NoticeBook& notices)
    : data_(data), units_(units), notices_(notices) {
  for (size_t i = 0; i < units_.size(); ++i) unit_of_cpu_.emplace(units_[i].cpu, i);
  bool recorded = false;
  data_.for_each({perf::kAuxOutputHwId}, [&](const Record& record) {
    recorded = true;
    if (const auto value = parse_aux_output_hw_id(record)) {
      take(record, *value);
    } else {
      notices_.error(Code::kBadTraceIdRecord, data_.path(), value.error().reason, {}, record.file_offset,
                     record.time());
    }
    return true;
  });
  if (recorded) return;
  for (size_t i = 0; i < units_.size(); ++i) {
    if (units_[i].has_trace_id) set(kOnlySink, units_[i].source.trace_id, i, Error::kNoOffset);
  }
}

void CsTraceIds::take(const Record& record, uint64_t value) {
  const auto refuse = [&](std::string reason) {
    notices_.error(Code::kBadTraceIdRecord, data_.path(), std::move(reason), {}, record.file_offset,
                   record.time());
  };
  const uint64_t major = field(value, 60, 4), minor = field(value, 56, 4);
  if (major != 0 || minor > 1)
    return refuse(fmt::format("AUX_OUTPUT_HW_ID of version {}.{} is not known", major, minor));
  const auto unit = unit_of_cpu_.find(record.id.cpu);
  if (unit == unit_of_cpu_.end())
    return refuse(fmt::format("AUX_OUTPUT_HW_ID of CPU {}, which has no trace unit", record.id.cpu));
  const auto id = static_cast<uint8_t>(field(value, 0, 8));
  if (id == 0 || id >= 0x70) return refuse(fmt::format("AUX_OUTPUT_HW_ID: {:#x} is no trace ID", id));
  const uint32_t sink = minor == 0 ? kOnlySink : static_cast<uint32_t>(field(value, 8, 32));
  if (minor == 1) sink_of_cpu_[record.id.cpu] = sink;
  set(sink, id, unit->second, record.file_offset);
}

void CsTraceIds::set(uint32_t sink, uint8_t id, size_t unit, uint64_t file_offset) {
  const auto [known, fresh] = unit_of_id_.try_emplace({sink, id}, unit);
  if (!fresh && known->second != unit) {
    notices_.error(
        Code::kBadTraceIdRecord, data_.path(),
        fmt::format("trace ID {:#x} is given to CPU {} and to CPU {}: trace with it is taken for CPU {}", id,
                    units_[known->second].cpu, units_[unit].cpu, units_[known->second].cpu),
        {}, file_offset);
    return;
  }
  units_[unit].source.trace_id = id;
  units_[unit].has_trace_id = true;
}

std::optional<size_t> CsTraceIds::unit_of(int32_t cpu, uint8_t id) const {
  if (const auto sink = sink_of_cpu_.find(cpu); sink != sink_of_cpu_.end()) {
    const auto unit = unit_of_id_.find({sink->second, id});
    if (unit != unit_of_id_.end()) return unit->second;
    return std::nullopt;
  }
  std::optional<size_t> only;
  for (const auto& [key, unit] : unit_of_id_) {
    if (key.second != id) continue;
    if (only && *only != unit) return std::nullopt;
    only = unit;
  }
  return only;
}

std::optional<size_t> CsTraceIds::unit_of_cpu(int32_t cpu) const {
  const auto unit = unit_of_cpu_.find(cpu);
  return unit == unit_of_cpu_.end() ? std::nullopt : std::optional(unit->second);
}

}  // namespace asof
