// AUXTRACE_INFO of cs_etm: a header, then a block of register values for each CPU. Version 0 has blocks of
// fixed length; from version 1 on each says how many values it has. From version 2 on trace IDs are not in
// the blocks but in AUX_OUTPUT_HW_ID records.
#include <fmt/format.h>

#include <map>

#include "decoder/coresight/cs_perf.h"

namespace asof {
namespace {

constexpr uint64_t kEtm3Magic = 0x3030303030303030, kEtm4Magic = 0x4040404040404040,
                   kEteMagic = 0x5050505050505050;
constexpr uint64_t kNewestVersion = 2;
constexpr size_t kHeaderWords = 3;
constexpr uint64_t kVirtualCounter = 1;         // TS_SOURCE
constexpr uint32_t kUnusedTraceId = 1U << 31U;  // in TRCTRACEIDR: the value is no ID

uint32_t low(uint64_t value) { return static_cast<uint32_t>(value); }

// Values of one block, those that it lacks being 0.
class Values {
 public:
  explicit Values(std::span<const uint64_t> values) : values_(values) {}
  bool has(size_t i) const { return i < values_.size(); }
  uint64_t wide(size_t i) const { return has(i) ? values_[i] : 0; }
  uint32_t operator[](size_t i) const { return low(wide(i)); }

 private:
  std::span<const uint64_t> values_;
};

void set_trace_id(CsUnit& unit, uint32_t value) {
  const uint32_t id = value & 0x7fU;
  unit.source.traceidr = value;
  unit.has_trace_id = (value & kUnusedTraceId) == 0 && id != 0 && id < 0x70;
  if (unit.has_trace_id) unit.source.trace_id = static_cast<uint8_t>(id);
}

CsUnit::Clock clock_of(const Values& values, size_t index) {
  if (!values.has(index) || static_cast<int64_t>(values.wide(index)) < 0) return CsUnit::Clock::kUnknown;
  return values.wide(index) == kVirtualCounter ? CsUnit::Clock::kVirtual : CsUnit::Clock::kOther;
}

void read_etm3(CsUnit& unit, const Values& values) {
  arm64::Source& s = unit.source;
  s.etmcr = values[0];
  set_trace_id(unit, values[1]);
  s.etmccer = values[2];
  s.etmidr = values[3];
  s.protocol = ((s.etmidr >> 8U) & 0xfU) == 3 ? arm64::Protocol::kPtm : arm64::Protocol::kEtm3;
  s.armv7 = true;
}

void read_etm4(CsUnit& unit, const Values& values, bool ete) {
  arm64::Source& s = unit.source;
  s.protocol = ete ? arm64::Protocol::kEte : arm64::Protocol::kEtm4;
  s.configr = values[0];
  set_trace_id(unit, values[1]);
  s.idr0 = values[2];
  s.idr1 = values[3];
  s.idr2 = values[4];
  s.idr8 = values[5];
  if (ete) s.devarch = values[7];
  unit.clock = clock_of(values, ete ? 8 : 7);
  // Every Linux that knows ETE sets TRFCR_ELx.TS to the virtual counter: cpu_enable_tracing() of coresight-etm4x-core.c, later
  // cpu_detect_trace_filtering(). FEAT_ETE has FEAT_TRF. perf says so (TS_SOURCE) from 6.4 on.
  if (ete && unit.clock == CsUnit::Clock::kUnknown) unit.clock = CsUnit::Clock::kVirtual;
}

// How many values a block of version 0 has; 0: not a block.
size_t old_length(uint64_t magic) {
  return magic == kEtm3Magic ? 4 : magic == kEtm4Magic ? 7 : magic == kEteMagic ? 8 : 0;
}

// Where two blocks are of one CPU, one of them is not, and which CPU's trace has its ID is not known.
void drop_doubles(std::vector<CsUnit>& units, uint64_t file_offset, NoticeBook& notices) {
  std::map<int32_t, size_t> blocks;
  for (const CsUnit& unit : units) ++blocks[unit.cpu];
  for (const auto& [cpu, count] : blocks) {
    if (count == 1) continue;
    notices.error(Code::kUndescribedTraceUnit, "AUXTRACE_INFO",
                  fmt::format("it describes the trace unit of CPU {} {} times", cpu, count),
                  "none of them is used: their trace is left out", file_offset);
  }
  std::erase_if(units, [&](const CsUnit& unit) { return blocks.at(unit.cpu) != 1; });
}

}  // namespace

Result<std::vector<CsUnit>> read_cs_units(const AuxtraceInfo& info, NoticeBook& notices) {
  const std::span<const uint64_t> words(info.priv);
  const auto bad = [&](std::string reason) {
    return fail(Code::kTraceUnitsUnknown, "AUXTRACE_INFO", info.file_offset, std::move(reason),
                "without the trace units' registers the trace cannot be read");
  };
  if (words.size() < kHeaderWords) return bad(fmt::format("{} words are no header", words.size()));
  const uint64_t version = words[0];
  if (version > kNewestVersion) return bad(fmt::format("header version {} is not known", version));
  const uint64_t cpus = low(words[1]);
  std::vector<CsUnit> units;
  size_t at = kHeaderWords;
  for (uint64_t i = 0; i < cpus; ++i) {
    const size_t fixed = version == 0 ? 2 : 3;
    const auto rest = words.subspan(at);
    if (rest.size() < fixed) break;
    const uint64_t length = version == 0 ? old_length(rest[0]) : rest[2];
    if (length == 0 || length > rest.size() - fixed || old_length(rest[0]) == 0) break;
    const Values values(rest.subspan(fixed, static_cast<size_t>(length)));
    CsUnit unit;
    unit.cpu = static_cast<int32_t>(low(rest[1]));
    if (rest[0] == kEtm3Magic) {
      read_etm3(unit, values);
    } else {
      read_etm4(unit, values, rest[0] == kEteMagic);
    }
    units.push_back(unit);
    at += fixed + static_cast<size_t>(length);
  }
  const size_t described = units.size();
  drop_doubles(units, info.file_offset, notices);
  if (units.empty()) return bad("it describes no trace unit");
  if (described != cpus) {
    notices.error(Code::kUndescribedTraceUnit, "AUXTRACE_INFO",
                  fmt::format("it announces {} trace units and describes {}", cpus, described),
                  "trace of the others is left out", info.file_offset);
  }
  return units;
}

}  // namespace asof
