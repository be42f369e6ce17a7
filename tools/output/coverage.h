// Coverage: how much of the traced time was decoded, and what was lost by cause. Fed with chunks in stream
// order, or in any order that keeps each stream's chunks in sequence.
//
// Time counts while tracing is on. A gap takes the time from the last thing known before it to the first
// known after it, within the bounds the gap itself gives; that time was traced, but is lost. A capture
// without any time is measured in bytes of trace instead.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "arch/arch.h"
#include "decoder/model/capture.h"

namespace asof {

class Coverage {
 public:
  explicit Coverage(const Capture& capture);

  // `instructions`: how many the chunk's steps hold, counted by a worker before.
  void add(const Chunk& chunk, uint64_t instructions);

  struct Cause {
    uint64_t count = 0;
    uint64_t bytes = 0;  // of trace passed over
    uint64_t time = 0;   // ns lost, as far as known
    std::string first;   // place and evidence of the first one
  };

  uint64_t gaps() const { return gaps_; }
  uint64_t errors() const { return errors_; }  // gaps that are errors; losses in the recording are not
  uint64_t instructions() const { return instructions_; }
  uint64_t traced_ns() const { return traced_; }
  uint64_t lost_ns() const { return lost_; }
  bool has_time() const { return traced_ != 0; }
  double percent() const;
  const std::map<Code, Cause>& causes() const { return causes_; }
  bool text_missing() const { return text_missing_; }

  // The line every summary ends with.
  std::string line() const;

 private:
  struct StreamState {
    bool on = true;
    bool seen = false;
    Time last = kTimeMin;
    Code open_cause = Code::kNone;  // gap whose end is not known yet
    Time gap_from = kTimeMin;
    Time gap_until = kTimeMax;
  };
  void advance(StreamState& s, Time t);
  void close_gap(StreamState& s, Time t);
  void add_gap(StreamState& s, const Gap& gap, const Stream& stream);

  const Capture& capture_;
  std::vector<StreamState> streams_;
  std::map<Code, Cause> causes_;
  uint64_t gaps_ = 0, errors_ = 0, instructions_ = 0, traced_ = 0, lost_ = 0, lost_bytes_ = 0;
  bool text_missing_ = false;
};

}  // namespace asof
