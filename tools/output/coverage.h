// Coverage: how much of the traced time was decoded, and what was lost by cause. Fed with chunks in stream
// order, or in any order that keeps each stream's chunks in sequence.
//
// Time counts while tracing is on. A gap takes the time from the last thing known before it to the first
// known after it, within the bounds the gap itself gives; that time was traced, but is lost. A capture
// without any time is measured in bytes of trace instead. The headline is the lower of both shares: a gap can
// be short and hold most of the trace, or hold few bytes and last long. Nothing is covered where no
// instruction was decoded. Of a part of the time, what lies outside of it does not count.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "arch/arch.h"
#include "decoder/model/capture.h"
#include "decoder/pipeline/pipeline.h"
#include "tools/output/gap_cause.h"

namespace asof {

class Coverage {
 public:
  // `choice`: what was to be decoded of it.
  explicit Coverage(const Capture& capture, const PipelineOptions& choice = {});

  // What follows is of this capture, which has the same streams: that of the same recording with more records.
  void move_to(const Capture& capture, const PipelineOptions& choice);

  // The whole chunk, as it was delivered. `instructions`: how many of those wanted its steps hold, counted by a
  // worker before.
  void add(const Chunk& chunk, uint64_t instructions);

  using Cause = GapCause;

  uint64_t gaps() const { return gaps_; }
  uint64_t errors() const { return errors_; }  // gaps that are errors; losses in the recording are not
  uint64_t instructions() const { return instructions_; }
  uint64_t traced_ns() const { return traced_; }
  uint64_t lost_ns() const { return lost_; }
  bool has_time() const { return traced_ != 0; }
  double time_percent() const;
  double bytes_percent() const;
  double percent() const { return std::min(time_percent(), bytes_percent()); }
  // The capture has no trace, or none of what was chosen, or none of instructions.
  bool nothing_to_decode() const;
  const std::map<Code, Cause>& causes() const { return causes_; }
  // What a ring buffer had overwritten at the start of a trace: no errors, and not among the causes.
  const Cause& ring_starts() const { return ring_starts_; }
  std::string ring_start_text() const;  // a line; empty if there is none
  bool text_missing() const { return text_missing_; }

  // Decoding ended before the end of the trace: "interrupted", "stopped by --max-errors".
  void stopped(std::string why) { stopped_ = std::move(why); }

  // What of it passed the filters: "12 of them selected"; `any`: something did.
  void selected(std::string what, bool any) {
    selected_ = std::move(what);
    none_selected_ = !any;
  }

  // The line every summary ends with.
  std::string line() const;

 private:
  double share(uint64_t lost, uint64_t whole) const;
  std::string headline() const;
  bool nothing_matched() const;
  struct StreamState {
    bool on = true;
    bool seen = false;
    Time last = kTimeMin;
    Code open_cause = Code::kNone;  // gap whose end is not known yet
    bool ring_start = false;        // that is how it began
    Time gap_from = kTimeMin;
    Time gap_until = kTimeMax;
    uint64_t reached = 0;  // where the trace ends that was delivered
  };
  void reach(StreamState& s, const Chunk& chunk, const Stream& stream);
  uint64_t lasted(Time from, Time to) const;  // ns within window_
  Cause& cause_of(Code code, bool ring_start) { return ring_start ? ring_starts_ : causes_[code]; }
  void count_gap(const Gap& gap, const Stream& stream);
  void advance(StreamState& s, Time t);
  void close_gap(StreamState& s, Time t);
  void add_gap(StreamState& s, const Gap& gap, const Stream& stream);

  const Capture* capture_;
  std::vector<StreamState> streams_;
  std::map<Code, Cause> causes_;
  Cause ring_starts_;
  std::set<Code> error_causes_;
  uint64_t gaps_ = 0, errors_ = 0, instructions_ = 0, traced_ = 0, lost_ = 0, lost_bytes_ = 0;
  // Of delivered segments, the last one of a stream whole: when decoding is stopped, others may have been decoded.
  uint64_t reached_bytes_ = 0;
  uint64_t chosen_bytes_ = 0;
  uint64_t missing_bytes_ = 0;  // of lost_bytes_, those that no piece of trace has
  TimeBounds window_{};
  std::string stopped_, selected_;
  bool none_selected_ = false;
  bool text_missing_ = false;
  bool chosen_part_ = false;  // some CPUs or threads
};

// What records say of a time, as the tables `pokes` and `text_lives` of that time have it.
uint64_t pokes_within(const Capture& capture, const TimeBounds& time);
std::vector<const BpfProgram*> bpf_programs_within(const Capture& capture, const TimeBounds& time);

// No stream has a byte of trace.
bool without_trace(const Capture& capture);

}  // namespace asof
