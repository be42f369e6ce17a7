// Writes what a board executed and handed out as a capture: a perf.data directory that perf 6.1 opens, its
// second snapshot beside it, and truth/ (docs/boards.md).
#pragma once
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tests/support/etm_unit.h"
#include "tests/support/pt_tracer.h"
#include "tests/support/truth.h"
#include "tools/board/guest_files.h"
#include "tools/board/log.h"

namespace asof::board {

struct CpuTrace {
  const test::Truth* truth = nullptr;
  std::span<const uint8_t> trace;
  uint64_t first_tick = 0, last_tick = 0;  // of the guest's counter
};

// What differs between the architectures.
struct TraceFormat {
  test::AttrSpec attr;
  std::string pmu;
  uint32_t info_type = 0;  // AUXTRACE_INFO
  std::vector<uint64_t> info;
  std::string arch, cpu_id;
  uint16_t elf_machine = 0;
  uint64_t aux_flags = 0;
};

TraceFormat pt_format(const GuestFiles& files, const test::TracerConfig& config);
TraceFormat etm_format(const test::EtmUnitConfig& config, unsigned cpus);

struct CaptureInput {
  const GuestFiles& files;
  const Log& log;
  std::span<const Poke> pokes;
  bool pokes_are_records = true;  // false: they are written as TEXT_POKE records, the kernel has none
  std::vector<CpuTrace> cpus;
  std::string note;
  bool trim = false;  // keep only pages of text that ran, changed or have a named program
};

void write_board_capture(const CaptureInput& input, const TraceFormat& format,
                         const std::filesystem::path& directory);

}  // namespace asof::board
