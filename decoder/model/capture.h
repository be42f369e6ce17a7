// Capture: one recording opened. Reading (open_capture) is single-threaded and ends with everything const:
// streams, text store, symbols, tasks, side-band. Formats: docs/formats.md.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arch/arch.h"
#include "arch/arm64/arm64.h"
#include "arch/stream.h"
#include "arch/time_conversion.h"
#include "arch/x86/x86.h"
#include "decoder/io/notice.h"
#include "decoder/model/archive_names.h"
#include "decoder/model/code_map.h"
#include "decoder/model/function_text.h"
#include "decoder/model/shard.h"
#include "decoder/model/symbols.h"
#include "decoder/perf/perf_data.h"
#include "textstore/result.h"
#include "textstore/text_store.h"

namespace asof {

namespace blocks {
class BlockFile;
}
class CoreFile;
class CsFrameMemory;

// A BPF program as the side-band describes it.
struct BpfProgram {
  uint32_t id = 0;
  std::string tag;   // hex
  std::string name;  // of the main function's KSYMBOL
  std::vector<AddrRange> functions;
  Time loaded = kTimeMin, unloaded = kTimeMax;
  bool has_image = false;
};

class TaskTable {  // comm of a thread at a time
 public:
  struct Comm {
    Time from;
    int32_t pid;
    std::string comm;
  };
  void add_comm(int32_t pid, int32_t tid, Time from, std::string comm);
  void finish();
  std::string_view comm(int32_t tid,
                        Time t) const;  // a fall-back like ":tid" is left to the printer: empty here

  // each(tid, comm), by thread and time.
  template <class Each>
  void for_each(Each&& each) const {
    for (const auto& [tid, list] : comms_) {
      for (const Comm& comm : list) each(tid, comm);
    }
  }

 private:
  std::map<int32_t, std::vector<Comm>> comms_;
};

struct CaptureOptions {
  std::string vmlinux, kallsyms, kcore, modules_dir, symfs, buildid_dir;  // empty: search the usual locations
  std::string kcore_end;              // second kcore taken at the end of the recording
  std::string ksym_text;              // bytes a watcher copied (captures of a board)
  std::vector<std::string> jitdumps;  // jit-<pid>.dump files beside those the recording maps
  bool force = false;                 // use files whose identity does not agree
  bool host_files = true;  // look at paths recorded in the capture on this machine (identity is checked)
  // Trace counter to perf's clock, for captures that do not say it.
  std::optional<TimeConversion> time_conversion{};
  bool catalogue = false;  // every site the kernel is built to change may hold any of its possible contents
  std::optional<Shards> shards{};  // of a plan: streams without trace in them stay empty
  unsigned jobs = 0;  // threads that open; 0: one for each CPU. What is read does not depend on it
  std::shared_ptr<CsFrameMemory> growing_frames{};  // of a recording that is opened again while it grows
};

struct Capture {
  std::string path;
  std::string kind;     // "perf.data", "perf.data directory", "bundle", "lldb bundle", "snapshot",
                        // or for block streams that of the recording and ", blocks"
  std::string machine;  // uname -m of the recording: "x86_64"
  std::string hostname, os_release, cpu_desc, cpu_id, command_line;
  x86::Config x86;
  arm64::Config arm64;
  std::vector<Stream> streams;
  std::optional<TextStore> text;  // set once open_capture returns
  SymbolTable symbols;
  std::shared_ptr<const FunctionTexts> functions;  // set for block streams that say it
  TaskTable tasks;
  std::shared_ptr<const PerfData> perf;             // set for perf.data: `asof events` walks its records
  std::shared_ptr<const blocks::BlockFile> blocks;  // set for block streams: the flow is already decoded
  std::shared_ptr<const CoreFile> core;             // set for plans: what was parsed once, for many processes
  std::vector<BpfProgram> bpf_programs;
  CodeFileMap code;  // files of code, for source lines
  std::vector<TextCopy> copies;
  std::vector<ModuleLifetime> modules;
  // How many changes of jump labels were sampled (arm64); nullopt: samples were not recorded.
  std::optional<uint64_t> sampled_changes;
  std::vector<Notice> notices;
  std::map<uint32_t, uint64_t> record_counts;  // by PERF_RECORD type, decompressed
  ArchiveNames archive_names;                  // for what is found in files later
  std::shared_ptr<const void> keep;            // mapped files that spans point into
  bool exclude_kernel = false, exclude_user = false;
  // Of block streams: times are of perf's clock, though what they were made by is not known.
  bool has_time = false;

  // The backend for `machine`.
  Result<std::unique_ptr<Arch>> arch() const;
};

// Opens any input: perf.data file or directory, "-" (pipe), bundle.json, trace.json (LLDB), block streams.
Result<Capture> open_capture(const std::string& path, const CaptureOptions& options);

}  // namespace asof
