// CsTraceIds: which trace unit a trace ID belongs to. IDs are those of the units' registers, or, since Linux
// 6.4, those that AUX_OUTPUT_HW_ID records give: one space of IDs for all (minor version 0), or one for each
// sink (1). Layout of the value: include/linux/coresight-pmu.h.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "decoder/coresight/cs_perf.h"

namespace asof {

class CsTraceIds {
 public:
  // Sets units[].source.trace_id where records give it. `units` must outlive the result.
  CsTraceIds(const PerfData& data, std::vector<CsUnit>& units, NoticeBook& notices);

  // Index of the unit that `id` means within trace of the ring of `cpu` (-1: of no CPU).
  std::optional<size_t> unit_of(int32_t cpu, uint8_t id) const;
  std::optional<size_t> unit_of_cpu(int32_t cpu) const;

 private:
  void take(const Record& record, uint64_t value);
  void set(uint32_t sink, uint8_t id, size_t unit, uint64_t file_offset);

  const PerfData& data_;
  std::vector<CsUnit>& units_;
  NoticeBook& notices_;
  std::map<std::pair<uint32_t, uint8_t>, size_t> unit_of_id_;  // by sink and ID
  std::map<int32_t, uint32_t> sink_of_cpu_;
  std::map<int32_t, size_t> unit_of_cpu_;
};

}  // namespace asof
