// What `asof script` takes of perf script's options: fields, --itrace, filters.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/model/capture.h"
#include "textstore/result.h"
#include "textstore/time.h"
#include "tools/script/script_record.h"

namespace asof {

enum ScriptField : uint32_t {
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
};

// perf keeps fields by type of event (perf_event_attr.type).
struct ScriptFields {
  static constexpr size_t kOtherType = 6;  // and what is above: drivers' own

  uint32_t flow = 0;    // of branches, instructions, transactions, which count as hardware events
  uint32_t synth = 0;   // of ptwrite, power events, PSB
  bool targets = true;  // branches show where they go although `addr` was not asked for
  // Of the recording's records, by the type of the event that they belong to.
  std::array<uint32_t, kOtherType + 1> records{};

  uint32_t of_record(uint32_t event_type) const {
    return event_type == 0 ? flow : records[std::min<size_t>(event_type, kOtherType)];
  }
};
ScriptFields default_script_fields();
// perf's -F: a list, or changes to `fields`: "+flags,-comm". In front there may be the type of the events that it is
// for: "hw:ip,sym".
Result<void> change_fields(const std::string& text, ScriptFields& fields);

struct ScriptItrace {
  bool instructions = false, branches = false, calls = false, returns = false, transactions = false,
       ptwrite = false, power = false, errors = false;
  bool shows_branch(uint32_t flags) const {
    const uint32_t wanted = (calls ? kCallFlags : 0) | (returns ? kReturnFlags : 0);
    return branches && (wanted == 0 || (flags & wanted) != 0);
  }
  bool by_time = true;       // the period is in nanoseconds, otherwise in instructions
  bool by_ticks = false;     // or in ticks of the trace's clock, until ticks_to_time() is called
  uint64_t period = 100000;  // perf's default: 100 us
  // Of errors: not those of overflows, of losses.
  bool no_overflows = false, no_losses = false;
  uint32_t chain = 0;  // entries of a call chain; 0: none
  uint32_t last_branches = 0;
  uint64_t skip = 0;        // events at the start
  uint32_t quick = 0;       // 1: only addresses in the trace, 2: only those of PSB+
  bool approx_ipc = false;  // at every change of the cycle count, not only where it is exact
  // Of letters that are taken as perf takes them, and change nothing here: why.
  std::vector<std::string_view> without_effect{};
};
// perf's letters. What asof does not take is an error that names the letter.
Result<ScriptItrace> parse_script_itrace(std::string_view text);
const std::optional<TimeConversion>& trace_clock(const Capture& capture);
// `clock`: of the trace.
Result<void> ticks_to_time(const std::optional<TimeConversion>& clock, ScriptItrace& itrace);
// Without --itrace: calls, errors, transactions, ptwrite and power.
ScriptItrace default_script_itrace();

}  // namespace asof
