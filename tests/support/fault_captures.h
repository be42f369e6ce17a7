// Small captures of situations in which perf 6.1 decodes wrong instructions, stops decoding or crashes, and
// their controls, which it decodes correctly. Each includes what really ran.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/capture_builder.h"

namespace asof::test {

struct FaultCapture {
  std::string name;
  std::filesystem::path path;   // the perf.data directory
  std::vector<Executed> truth;  // of CPU 0, in order
  std::vector<Addr> unknown;    // addresses among them whose bytes are not in the capture
  Addr site = 0;                // the patched site, or the address of the program
  bool perf_is_right = false;   // a control
};

// A BPF program calls its sub-program; the image holds both, one after the other.
FaultCapture bpf_sub_program(const std::filesystem::path& directory);
// A program is loaded inside the module range that the kcore copy spans, and a kernel function runs
// afterwards on a page that was not needed before. `load`: false for the control.
FaultCapture bpf_inside_kcore(const std::filesystem::path& directory, bool load);
// A program is unloaded, another one loaded at its address. `lost`: the unregister records are missing.
FaultCapture bpf_reload(const std::filesystem::path& directory, bool lost);
// A static branch is patched while the trace has no timing packet; the site runs before and after.
FaultCapture poke_without_timing(const std::filesystem::path& directory, bool timed_control);
// The CPU is at the site from before the poke until after it; then a TSC packet.
FaultCapture poke_while_standing(const std::filesystem::path& directory);
// The record's old bytes are not those that were in memory.
FaultCapture poke_wrong_old_bytes(const std::filesystem::path& directory);
// AUXTRACE.reference is 0.
FaultCapture zero_reference(const std::filesystem::path& directory);
// A page of out-of-line slots from before the recording, outside kcore: one slot was written before it (its
// bytes are not in the capture), one is written during the recording (TEXT_POKE with its bytes).
FaultCapture old_slot_page(const std::filesystem::path& directory);

}  // namespace asof::test
