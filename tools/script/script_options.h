// What `asof script` takes of perf script's --itrace.
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

struct ScriptItrace {
  bool instructions = false, branches = false, calls = false, returns = false, transactions = false,
       ptwrite = false, power = false, errors = false;
  bool pebs = false;        // letter o
  bool interrupts = false;  // letter I: Event Trace
  bool timeless = false;    // letter Z: no times, stream by stream
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
  uint32_t sample_chain = 0, sample_branches = 0;  // the same for the recording's own samples
  uint64_t skip = 0;                               // events at the start
  uint32_t quick = 0;                              // 1: only addresses in the trace, 2: only those of PSB+
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
