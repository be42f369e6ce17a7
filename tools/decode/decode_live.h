// `perf record -o - | asof decode -`, and files that perf is writing: what is settled is given out while the recording
// goes on (docs/design.md, "While it is being recorded"). At the end everything was given out that the whole recording
// gives: of lines byte for byte.
#pragma once
#include <functional>
#include <optional>

#include "tools/cli/options.h"
#include "tools/decode/decode_options.h"
#include "tools/output/diagnostics.h"
#include "tools/output/exit_code.h"

namespace asof {

// Is the input a pipe that may still be written?
bool is_live_pipe(const InputOptions& input);

struct LiveRequest {
  InputOptions input;
  DecodeChoice choice;
  DecodeFormat format;
  Selection selection;
  std::string output;
  std::string same_machine;  // for a file: a recording of the machine that is finished
  // Opens the whole recording and tells what there is to say of it and of what is wanted of it.
  std::function<std::optional<Capture>()> open_whole;
  // The time that is wanted of it; says what is wrong. Empty: all of it.
  std::function<bool(const Capture&, TimeBounds&)> window;
  bool window_needs_end = false;  // percentages do
  bool blocks = false;            // a block stream, not lines
};

ExitCode decode_live(LiveRequest request, Diagnostics& diagnostics);

}  // namespace asof
