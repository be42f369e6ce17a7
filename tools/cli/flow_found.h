// Whether anything of a trace could be decoded, and how many errors were met: the exit status of verbs that count
// something else.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "decoder/calls/timeline.h"
#include "decoder/pipeline/pipeline.h"
#include "tools/cli/options.h"
#include "tools/output/diagnostics.h"
#include "tools/output/exit_code.h"
#include "tools/output/gap_cause.h"

namespace asof {

// Errors in the flow, as Coverage counts them, against --strict and --max-errors.
class FlowErrors {
 public:
  // `time`: what is outside of it does not count.
  FlowErrors(const Capture& capture, const DecodeChoice& choice, TimeBounds time)
      : capture_(capture), choice_(choice), time_(time) {}

  void add(const Gap& gap, const Stream& stream);
  // More than --max-errors. Asked by any thread.
  bool enough() const { return enough_; }
  // Of a run_timeline(), which is stopped when it is enough. While this exists.
  void watch(TimelineOptions& options);
  // Of all gaps. `where`: the capture, where there are several.
  std::vector<Notice> notices(const std::string& where = {}) const;
  void tell(Diagnostics& diagnostics, const std::string& where = {}) const;
  // `status`: of a verb that met none.
  ExitCode judge(ExitCode status) const;
  ExitCode judge(ExitCode status, Diagnostics& diagnostics) const;  // and says what was stopped

 private:
  const Capture& capture_;
  const DecodeChoice& choice_;
  TimeBounds time_;
  std::map<Code, GapCause> causes_;
  uint64_t count_ = 0;
  std::atomic<bool> enough_ = false;
};

struct FlowFound {
  FlowFound(const Capture& capture, const DecodeChoice& choice, TimeBounds time)
      : errors(capture, choice, time) {}
  // Tells what gaps there were.
  ExitCode status(Diagnostics& diagnostics, const std::string& where = {}) const;

  bool instructions = false;
  bool any_error = false;     // a gap, at any time
  bool text_missing = false;  // the cause of some
  FlowErrors errors;
};

// Passes everything on to `consumer` and takes note.
class FlowWatch final : public ChunkConsumer {
 public:
  FlowWatch(ChunkConsumer& consumer, FlowFound& found) : consumer_(consumer), found_(found) {}

  std::unique_ptr<Prepared> prepare(const Chunk& chunk, const Stream& stream) override {
    return consumer_.prepare(chunk, stream);
  }
  void deliver(Chunk& chunk, const Stream& stream, Prepared* prepared) override;
  void finished(const std::exception_ptr& error) override { consumer_.finished(error); }
  bool delivers_steps() const override { return consumer_.delivers_steps(); }
  bool stopped() const override { return consumer_.stopped() || found_.errors.enough(); }

 private:
  ChunkConsumer& consumer_;
  FlowFound& found_;
};

}  // namespace asof
