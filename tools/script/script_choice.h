// ScriptChoice: the options of `asof script`, and what they mean together.
#pragma once
#include <string>
#include <vector>

#include "tools/cli/options.h"
#include "tools/cli/task_options.h"
#include "tools/script/script_printer.h"
#include "tools/script/side_band_lines.h"

namespace asof {

struct ScriptChoice {
  InputOptions input;
  DecodeChoice choice;
  std::vector<std::string> fields;
  std::string itrace, output;
  TaskText tasks;
  std::string time, symbols, dsos, graph_functions;
  std::string stop_bt;
  uint32_t max_stack = 127, max_blocks = 0;
  bool nanoseconds = false, relative = false, deltas = false, hide_chains = false, no_itrace = false;
  bool call_trace = false, call_return_trace = false;
  SideBandChoice side_band;
  std::string insn_trace;
  bool inlined = false;
};

Result<ScriptFormat> script_format(const ScriptChoice& choice);
// Once the recording is open: fields that its samples have, a clock for those that need one.
Result<void> fit_to_recording(const Capture& capture, ScriptFormat& format);
Result<ScriptSelection> script_selection(const ScriptChoice& choice);

}  // namespace asof
