// What a recording leaves open about the code that ran, in the words of the confidence that every instruction
// has: anything that may have changed its bytes unrecorded keeps an instruction from being certain. Opening a
// capture reports each such matter with a notice, except guests, which only the trace shows; the table gives,
// by the code of the notice (or of the gaps of a guest), which instructions it concerns, what they are called
// because of it, and how to record without it. `asof doctor` and `asof report` show the rows whose notices
// were given. A new notice of that kind gets a row here.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/model/capture.h"

namespace asof {

struct OpenMatter {
  Code code;                 // of the notice: "E-TEXT-309"
  std::string_view what;     // which instructions: "kernel text"
  std::string_view called;   // what they are called at best; a word of confidence_name(), or "unknown": a gap
  std::string_view because;  // what is open
  std::string_view remedy;   // empty: nothing can be done about it
  bool usual = false;        // no warning
};

std::span<const OpenMatter> open_matter_table();

struct OpenFinding {
  const OpenMatter* matter = nullptr;
  std::string evidence;  // code and reason of the first notice, and of how many more
};

// Those of the capture, in the table's order, each once. Searches all trace for guests.
std::vector<OpenFinding> open_matters(const Capture& capture);

// "kernel text: ambiguous, because changes of it were not recorded"
std::string open_matter_text(const OpenMatter& matter);

}  // namespace asof
