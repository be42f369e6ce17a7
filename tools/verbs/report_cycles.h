// The part of `asof report` about core cycles.
#pragma once
#include "decoder/calls/cycle_costs.h"
#include "tools/output/output.h"

namespace asof {

// `top`: how many of each; 0: all.
void print_cycles(const CycleCosts& cycles, size_t top, Output& out);
void print_cycles_json(const CycleCosts& cycles, size_t top, Output& out);

}  // namespace asof
