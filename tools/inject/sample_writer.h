// SampleWriter: records of the flow (ScriptRecord), in order of time, as samples of perf, and as its records of errors.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tools/inject/mapped_text.h"
#include "tools/inject/perf_data_file.h"
#include "tools/script/script_options.h"
#include "tools/script/thread_stacks.h"

namespace asof {

// The events that perf makes for these letters. `exclude`: of the trace's own event, whether user or kernel code was
// traced; `modifiers`: the same behind a name.
std::vector<SynthesisedEvent> synthesised_events(const ScriptItrace& itrace, uint64_t exclude,
                                                 const std::string& modifiers);

class SampleWriter {
 public:
  SampleWriter(const Capture& capture, const ScriptItrace& itrace, std::vector<SynthesisedEvent> events,
               TimeBounds time, PerfDataFile& file)
      : capture_(capture), itrace_(itrace), events_(std::move(events)), time_(time), file_(file) {}
  // For AutoFDO: samples elsewhere are left out, and a branch stack ends where the flow was elsewhere.
  void only_in(MappedText& mapped) { mapped_ = &mapped; }
  void take(std::string_view records);
  uint64_t samples() const { return samples_; }
  uint64_t errors() const { return errors_; }
  uint64_t left_out() const { return left_out_; }

 private:
  const SynthesisedEvent* event_of(ScriptRecord::Kind kind) const;
  void write(const ScriptRecord& r, const ThreadStack& stack);
  void call_chain(const ScriptRecord& r, const ThreadStack& stack);
  void branch_stack(const ThreadStack& stack);
  void raw(const ScriptRecord& r);
  void error(const ScriptRecord& r);
  void finish_record(Time time);

  const Capture& capture_;
  ScriptItrace itrace_;
  std::vector<SynthesisedEvent> events_;
  TimeBounds time_;
  PerfDataFile& file_;
  ThreadStacks stacks_;
  MappedText* mapped_ = nullptr;
  std::string out_;
  uint64_t samples_ = 0, errors_ = 0, skipped_ = 0, left_out_ = 0;
};

}  // namespace asof
