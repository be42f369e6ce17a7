// Writes the runs of one truth file (docs/usage.md, "Truth") and sums them up.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <span>

#include "textstore/time.h"
#include "tools/board/machine/log_reader.h"
#include "tools/board/machine/machine_truth.h"

namespace asof::machine {

class TruthWriter {
 public:
  using Known = std::function<bool(Addr, std::span<const uint8_t>)>;
  // Throws std::runtime_error, as the others do, when the file cannot be written.
  TruthWriter(const std::filesystem::path& file, const CodeTable& code, const TimeConversion& clock,
              const Known& known);
  ~TruthWriter();

  void add(LogRecord record);
  // Executed, but not in the recording.
  void leave_out(const LogRecord& record);
  CpuTruth finish();

 private:
  class RunFile;
  class SeenRuns;
  const CodeTable& code_;
  const TimeConversion& clock_;
  std::unique_ptr<RunFile> file_;
  std::unique_ptr<SeenRuns> seen_;
  CpuTruth truth_;
  bool hole_ = true;  // the run before this one is not in the truth
};

}  // namespace asof::machine
