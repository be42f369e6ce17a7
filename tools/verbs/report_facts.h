// The parts of `asof report` that are facts of the recording and of what was lost, as lines of words.
#pragma once
#include <string_view>

#include "decoder/model/capture.h"
#include "tools/output/coverage.h"
#include "tools/output/output.h"

namespace asof {

// A line of words, no wider than the terminal.
void put_line(Output& out, std::string_view line);
void print_capture(const Capture& c, Output& out);
void print_text_facts(const Capture& c, const TimeBounds& time, Output& out);
// What the recording itself reports: trace that never reached the file.
void print_stream_losses(const Capture& c, const TimeBounds& time, Output& out);
void print_causes(const Capture& c, const Coverage& coverage, Output& out);
// Why not all of the flow is certain, as far as the recording itself is the reason.
void print_open_matters(const Capture& c, Output& out);

}  // namespace asof
