// ScriptChoice: the options of `asof script`, and what they mean together.
#pragma once
#include <string>
#include <vector>

#include "tools/cli/options.h"
#include "tools/script/script_printer.h"
#include "tools/script/side_band_lines.h"

namespace asof {

struct ScriptChoice {
  InputOptions input;
  DecodeChoice choice;
  std::vector<std::string> fields;
  std::string itrace, output;
  std::string pids, tids, comms, time, symbols, dsos, graph_functions;
  bool nanoseconds = false, relative = false, deltas = false, hide_chains = false;
  bool call_trace = false, call_return_trace = false;
  SideBandChoice side_band;
  std::string insn_trace;
  bool inlined = false;
};

Result<ScriptFormat> script_format(const ScriptChoice& choice);
Result<ScriptSelection> script_selection(const ScriptChoice& choice);

}  // namespace asof
