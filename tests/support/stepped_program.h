// A real program, run instruction by instruction under ptrace, as a capture: the trace unit (pt_tracer.h) is
// given what each instruction did and writes what Intel PT would have written for user mode. For tests of
// outputs that other tools read together with the program's own file.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "textstore/address.h"

namespace asof::test {

struct SteppedProgram {
  uint64_t instructions = 0;
  uint64_t base = 0;                                // added to the addresses of its file
  std::map<std::pair<Addr, Addr>, uint64_t> taken;  // branches between its own instructions, by both ends
  std::map<Addr, uint64_t> counts;  // how often each instruction ran, the last system call too
};

inline constexpr uint64_t kSteppedCycles = 3;  // that each instruction takes

// Runs `program`, an ELF file, without arguments and with address randomisation off, and writes `capture`, a
// perf.data file. Nothing: this machine does not allow tracing a child, or the program ran for longer than
// `limit` instructions. `cycles`: with CYC packets.
std::optional<SteppedProgram> record_stepped(const std::filesystem::path& program,
                                             const std::filesystem::path& capture, uint64_t limit,
                                             bool cycles = false);

}  // namespace asof::test
