// The arm64 demo capture: 80 us of two CPUs with timer interrupts, while static branches are switched on and
// off and function tracing is enabled and disabled, all without notifying the other CPU
// (aarch64_insn_patch_text_nosync()). CPU 1's trace pauses once.
#pragma once
#include <filesystem>
#include <memory>
#include <vector>

#include "tests/support/etm_machine.h"
#include "tests/support/etm_program.h"

namespace asof::test {

struct EtmDemo {
  bool frames = true;
  std::unique_ptr<EtmProgram> program;
  std::unique_ptr<EtmMachine> machine;
  std::vector<std::unique_ptr<EtmCpu>> cpus;  // after the run
};

struct EtmDemoOptions {
  uint64_t seed = 0;  // 0: the committed one
  EtmUnitConfig unit{.return_stack = true, .timestamp_every = 3, .sync_bytes = 1024};
  uint64_t microseconds = 80;
  bool frames = true;  // else trace as a sink without a formatter writes it
  bool truth = true;   // what ran is kept
};

// The result depends only on the options.
EtmDemo make_etm_demo(const EtmDemoOptions& options = {});
// Below `directory`: perf.data/, truth/.
void write_etm_demo(const EtmDemo& demo, const std::filesystem::path& directory);

}  // namespace asof::test
