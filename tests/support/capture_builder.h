// Assembles a Machine's run as a capture: perf.data with its kcore directory, user programs, truth.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/elf_writer.h"
#include "tests/support/machine.h"
#include "tests/support/perf_data_writer.h"

namespace asof::test {

struct KernelSymbol {
  Addr address = 0;
  char type = 't';
  std::string name{};
  std::string module{};  // empty: kernel
};

struct KernelModule {
  std::string name{};
  Addr address = 0;
  uint64_t size = 0;
};

// A user program that is mapped when the recording starts.
struct UserProgram {
  std::string path{};  // as seen on the traced system
  ExecutableSpec elf{};
  std::vector<int32_t> pids{};
};

struct CaptureSpec {
  PerfDataWriter::Options writer{};
  std::vector<CoreSegment> kcore{};   // as read before the run
  Addr text_begin = 0, text_end = 0;  // _text, _etext
  std::vector<KernelSymbol> symbols{};
  std::vector<KernelModule> modules{};
  std::vector<UserProgram> programs{};
  std::vector<BpfProgSpec> bpf_images{};  // for BPF_PROG_INFO
  bool with_kcore = true;
  bool have_sched_switch = true;
  uint64_t reference_override = ~0ULL;  // AUXTRACE.reference; default: TSC when the buffer was copied
  std::optional<std::vector<SideEvent>> side_events{};  // replace those of the machine
  uint64_t sideband_flags = 0;                          // additional flags in the attribute of the side-band
  bool asks_for_pokes = true;                           // attr.text_poke
  uint64_t record_clock_ahead = 0;  // ns by which the records' clock is ahead of TIME_CONV's
  unsigned recorded_cpus = ~0U;     // at most; the machine may have more
  std::string hostname = "testhost";
  std::string os_release = "6.1.0-test";
  std::string cpu_id = "GenuineIntel,6,142,10";
};

// The events perf opens: attr 0 is intel_pt, attr 1 the software event whose rings hold the side-band.
inline constexpr size_t kPtAttr = 0, kSidebandAttr = 1;

PerfDataWriter make_perf_data(const Machine& machine, const CaptureSpec& spec);
DirectoryParts make_kcore_dir(const CaptureSpec& spec);

// directory/perf.data/{data,kcore_dir}, directory/symfs/<program>, directory/truth/.
void write_capture(const Machine& machine, const CaptureSpec& spec, const std::filesystem::path& directory,
                   const std::string& note);

}  // namespace asof::test
