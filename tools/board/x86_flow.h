// x86 boards: follows the blocks that one CPU executed, and reports to a simulated trace unit (PtTracer) and
// to the truth what happened at the end of each. Exceptions and interrupts show as blocks that begin at an
// entry; the frame that the CPU pushed shows what was interrupted.
#pragma once
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/support/pt_tracer.h"
#include "tests/support/sim_memory.h"
#include "tests/support/truth.h"
#include "tools/board/log.h"

namespace asof::board {

struct X86Options {
  test::TracerConfig trace;
  std::function<bool(Addr)> is_entry;                         // an exception enters here
  std::function<bool(Addr, std::span<const uint8_t>)> known;  // the capture has these bytes at some time
  std::function<uint64_t(uint64_t tsc)> perf_time;
};

struct X86Cpu {
  test::Truth truth{false};
  std::vector<uint8_t> trace;
  uint64_t first_tsc = 0, last_tsc = 0;
  uint64_t exceptions = 0, int3_hits = 0, late_instructions = 0, string_iterations = 0;
};

// Throws std::runtime_error where the flow cannot be explained.
X86Cpu encode_x86(const Log& log, size_t cpu, const X86Options& options);

}  // namespace asof::board
