// arm64 boards: follows the blocks that one CPU executed at EL1, reports to a simulated ETMv4 (EtmUnit) and
// to the truth what happened, and finds the changes of text among the stores of the code that writes
// instructions.
#pragma once
#include <functional>
#include <vector>

#include "tests/support/etm_unit.h"
#include "tests/support/truth.h"
#include "tools/board/guest_files.h"
#include "tools/board/log.h"

namespace asof::board {

struct Arm64Options {
  test::EtmUnitConfig unit;
  uint64_t seed = 1;
  Addr vectors = 0;
  std::function<bool(Addr, std::span<const uint8_t>)> known;
  std::function<uint64_t(uint64_t ticks)> perf_time;
};

struct Arm64Cpu {
  test::Truth truth{false};
  std::vector<uint8_t> trace;  // without frames
  uint64_t first_tick = 0, last_tick = 0;
  uint64_t exceptions = 0, breakpoints = 0, late_instructions = 0;
};

// Throws std::runtime_error where the flow cannot be explained.
Arm64Cpu encode_arm64(const Log& log, size_t cpu, const Arm64Options& options);

// An arm64 kernel has no TEXT_POKE records. These are made from the true stores to the kernel's own text.
std::vector<Poke> stored_pokes(const Log& log, const GuestFiles& files);

}  // namespace asof::board
