// What `asof validate` prints: a verdict with its reasons, each question with its answer, and with a truth
// the counts of every CPU.
#pragma once
#include <map>
#include <span>

#include "tools/output/output.h"
#include "tools/validate/validate_truth.h"
#include "tools/validate/validation.h"

namespace asof {

struct Validation {
  std::vector<Check> checks;
  const std::map<TruthId, CpuResult>* truth = nullptr;  // nullptr: none was given
  bool pass() const;
};

void print_validation_text(const Validation& v, const Capture& capture, const LiveEvents& events,
                           Output& out);
void print_validation_json(const Validation& v, Output& out);
// The same as one object a line: "truth" of each CPU or thread, "by_event", "check", and at last "verdict".
void print_validation_lines(const Validation& v, Output& out);

}  // namespace asof
