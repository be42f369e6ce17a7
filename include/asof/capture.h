// Capture: one recording, opened.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "asof/error.h"
#include "asof/flow.h"
#include "asof/text.h"
#include "asof/timeline.h"
#include "asof/types.h"

namespace asof::v0 {

// A counter of the trace to perf's clock: ns = zero + (counter * multiplier >> shift), as the perf mmap page
// has it (include/uapi/linux/perf_event.h, time_zero).
struct TimeConversion {
  std::uint16_t shift = 0;
  std::uint32_t multiplier = 1;
  std::uint64_t zero = 0;
};

// Empty paths: perf's usual locations are searched.
struct OpenOptions {
  std::string vmlinux{}, kallsyms{};
  std::string kcore{};                  // file, or directory with kcore, kallsyms, modules
  std::string kcore_end{};              // a second copy, taken at the end of the recording
  std::string modules_dir{};            // of kernel modules
  std::string symfs{};                  // files are searched below it
  std::string buildid_dir{};            // build-id cache; empty: ~/.debug
  std::string ksym_text{};              // bytes copied when KSYMBOL records appeared
  std::vector<std::string> jitdumps{};  // jit-<pid>.dump, beside those that the recording maps
  bool host_files = true;               // look for recorded paths on this machine; identity is checked
  bool force = false;                   // use files whose identity does not agree
  bool catalogue = false;               // every site that the kernel is built to change counts as doubtful
  std::optional<TimeConversion> time_conversion{};  // where the capture does not say it
};

// Trace of one CPU or thread.
struct TraceStream {
  std::string name;       // "cpu0", "tid4711"
  std::int32_t cpu = -1;  // -1: of a thread
  std::int32_t tid = -1;  // -1: of a CPU
  std::uint64_t bytes = 0;
};

struct CaptureInfo {
  std::string path;
  std::string kind;     // "perf.data", "perf.data directory", "bundle", "lldb bundle", "snapshot"
  std::string machine;  // uname -m of the recording
  std::string hostname, os_release, cpu, command_line;  // empty: not recorded
  std::vector<TraceStream> streams;
};

// A handle, cheap to copy: copies share the data, which live until the last handle, Text and Records of it
// is gone. Const after open(): any number of threads may use one, also at once.
class ASOF_EXPORT Capture {
 public:
  // perf.data as file or directory, "-" (standard input), bundle.json, LLDB's trace.json, block stream. Reads
  // all side-band records and makes the text store; trace is mapped, not read. Single-threaded. Errors:
  // E-FILE-* (no such file, not a recording, trace of a machine that is not supported).
  static Result<Capture> open(const std::string& path, const OpenOptions& options = {});

  const CaptureInfo& info() const;
  std::span<const Notice> notices() const;
  Text text() const;
  // Name of a thread at an instant; empty: unknown.
  std::string_view comm(std::int32_t tid, Time time) const;

  // The flow. Each call decodes anew, starting when the first record is read.
  Instructions instructions(const Filter& filter = {}) const;
  Blocks blocks(const Filter& filter = {}) const;
  Events events(const Filter& filter = {}) const;
  Gaps gaps(const Filter& filter = {}) const;
  Flow flow(const Filter& filter = {}) const;
  Calls calls(const CallOptions& options = {}) const;

  // Decodes everything, in this call.
  Timeline timeline(const TimelineOptions& options = {}) const;

 private:
  explicit Capture(std::shared_ptr<const CaptureData> data);
  std::shared_ptr<const CaptureData> data_;
};

}  // namespace asof::v0
