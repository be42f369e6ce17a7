// The jitdump files of a recording: found as tools/perf/util/jitdump.c finds them, by the mapping of a file
// named jit-<pid>.dump, and dated on perf's clock.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arch/time_conversion.h"
#include "decoder/model/capture.h"
#include "decoder/user_text/jitdump.h"

namespace asof {

struct JitClock {
  std::optional<TimeConversion> counter;  // TSC or virtual counter to perf's clock
  bool perf_is_monotonic = false;         // the recording is timed by CLOCK_MONOTONIC, as the files may be
};

class JitFiles {
 public:
  // `folder` of the capture, `symfs`: where recorded paths are searched before the machine's own.
  JitFiles(const CaptureOptions& options, std::string folder, std::string symfs, const JitClock& clock,
           NoticeBook& notices);

  // The file recorded as `path` (`given`: as it is); nullptr, with a notice, when it is absent or no jitdump.
  const JitDump* open(const std::string& path, bool given = false);
  // False, with one notice: its times and perf's cannot be compared.
  bool dated(const JitDump& dump);
  Time time(const JitDump& dump, const JitCode& code) const;
  std::span<const std::string> given() const { return options_.jitdumps; }

 private:
  const CaptureOptions& options_;
  std::string folder_, symfs_;
  JitClock clock_;
  NoticeBook& notices_;
  std::map<std::string, std::unique_ptr<const JitDump>> files_;
  std::map<const JitDump*, bool> dated_;
};

// What the files hold, by whether perf's clock is theirs too.
JitClock jit_clock(const Capture& capture, const PerfData& data);

}  // namespace asof
