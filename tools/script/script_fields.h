// The fields of perf script's lines (-F), by type of event.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "decoder/perf/perf_data.h"
#include "textstore/result.h"

namespace asof {

enum ScriptField : uint64_t {
  kScriptComm = 1 << 0,
  kScriptTid = 1 << 1,
  kScriptPid = 1 << 2,
  kScriptTime = 1 << 3,
  kScriptCpu = 1 << 4,
  kScriptEvent = 1 << 5,
  kScriptIp = 1 << 6,
  kScriptSym = 1 << 7,
  kScriptDso = 1 << 8,
  kScriptAddr = 1 << 9,
  kScriptSymoff = 1 << 10,
  kScriptSrcline = 1 << 11,
  kScriptPeriod = 1 << 12,
  kScriptFlags = 1 << 13,
  kScriptInsn = 1 << 14,
  kScriptInsnlen = 1 << 15,
  kScriptSynth = 1 << 16,
  kScriptCallindent = 1 << 17,
  kScriptBrstack = 1 << 18,
  kScriptBrstacksym = 1 << 19,
  kScriptDisasm = 1 << 20,
  kScriptIpc = 1 << 21,
  kScriptMisc = 1 << 22,
  kScriptBrstackinsn = 1 << 23,
  kScriptBrstackinsnlen = 1 << 24,
  // Of samples of the recording alone:
  kScriptTrace = 1 << 25,
  kScriptTod = 1 << 26,
  kScriptWeight = 1 << 27,
  kScriptBpfOutput = 1 << 28,
  kScriptIregs = 1 << 29,
  kScriptUregs = 1 << 30,
  kScriptPhysAddr = uint64_t{1} << 31,
  kScriptInsLat = uint64_t{1} << 32,
  kScriptDataPageSize = uint64_t{1} << 33,
  kScriptCodePageSize = uint64_t{1} << 34,
  kScriptBrstackoff = uint64_t{1} << 35,
};

// perf keeps fields by type of event (perf_event_attr.type).
struct ScriptFields {
  static constexpr size_t kSoftwareType = 1, kTracepointType = 2, kRawType = 4,
                          kOtherType = 6;  // and what is above: drivers' own
  using Masks = std::array<uint64_t, kOtherType + 1>;

  uint64_t flow = 0;    // of branches, instructions, transactions, and of the recording's own hardware events
  uint64_t synth = 0;   // of ptwrite, power events, PSB
  bool targets = true;  // branches show where they go although `addr` was not asked for
  // Of the recording's records, by the type of the event that they belong to; that of hardware is `flow`.
  Masks records{};
  // What the user named, by the same types, and types that were named with a list of their own.
  Masks asked{};
  std::array<bool, kOtherType + 1> listed{};

  static size_t type_of(uint32_t event_type) { return std::min<size_t>(event_type, kOtherType); }
  uint64_t& of_type(size_t type) { return type == 0 ? flow : records[type]; }
  uint64_t of_record(uint32_t event_type) const {
    return event_type == 0 ? flow : records[type_of(event_type)];
  }
};
ScriptFields default_script_fields();
// perf's -F: a list, or changes to `fields`: "+flags,-comm". In front there may be the type of the events that it is
// for: "hw:ip,sym".
Result<void> change_fields(const std::string& text, ScriptFields& fields);

// As perf does for the samples of a recording: fields that the first event of a type does not have are left out, but
// those that were asked for are an error. `chains`: call chains are shown.
Result<void> fit_fields(std::span<const PerfAttr> events, bool chains, ScriptFields& fields);

}  // namespace asof
