// The demo capture: 0.12 ms of a two-CPU machine with user programs, system calls, timer interrupts and
// context switches, in which
//  * a static key with five sites is switched on and off while both CPUs run through them (some visits hit
//    the INT3),
//  * a BPF program with a sub-program is loaded, run and unloaded, and its address is reused by the next one,
//  * the trace buffer of CPU 1 overflows once.
#pragma once
#include <filesystem>
#include <memory>

#include "tests/support/capture_builder.h"

namespace asof::test {

struct DemoCapture {
  std::unique_ptr<Machine> machine;  // after the run, with all instructions in its Truth
  CaptureSpec spec;
  Addr bpf_address = 0;
  std::vector<Addr> static_sites;
};

struct DemoOptions {
  TracerConfig trace{.psb_bytes = 2048};
  uint64_t seed = 20;
  bool changes = true;  // of text; and the overflow
};

// Runs the machine. The result depends only on the options; the committed capture has the default ones.
DemoCapture make_demo(const DemoOptions& options = {});

// Below `directory`: perf.data/, symfs/, truth/.
void write_demo(const std::filesystem::path& directory);

}  // namespace asof::test
