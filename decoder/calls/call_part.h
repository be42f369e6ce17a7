// CallPart: single calls of a block stream, made by several processes. A part is a range of the flow records in the
// order in which they are delivered. Each process takes the calls of all records before its range as spans
// (call_span.h), which yields the state that one run has there, reads the flow of its own records, and passes on the
// slices that end in them. So the slices of all parts are those of one run, in its order.
#pragma once
#include <tsl/robin_set.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "decoder/calls/timeline.h"
#include "decoder/model/shard.h"

namespace asof {

// Is told of slices that end behind the part, around some that were passed on (or not).
using AroundPart = std::function<void(uint64_t id, uint64_t parent)>;

// run_timeline() of one part: slices, gaps, events, and all tracks and functions. Not with a time, nor with detail. A
// block stream of which a record's calls are not those of its flow is refused by the part that has this flow.
Result<TimelineSummary> run_timeline_part(const Capture& capture, const TimelineOptions& options, Shard part,
                                          TimelineSink& sink, const AroundPart& around = {},
                                          const std::function<void(const PipelineProgress&)>& progress = {});

class CallPart {
 public:
  // `capture`: of a block stream.
  CallPart(const Capture& capture, const Arch& arch, const PipelineOptions& options, Shard shard);

  uint64_t first() const { return first_; }
  uint64_t end() const { return end_; }
  bool last() const { return last_; }
  // Whether a record of a stream is in the range.
  bool has(size_t stream, size_t record) const {
    return record >= records_[stream].begin && record < records_[stream].end;
  }

 private:
  struct Range {
    size_t begin = 0, end = 0;
  };
  uint64_t first_ = 0, end_ = 0;  // in the order of delivery
  bool last_ = false;
  std::vector<Range> records_;  // by stream
};

// Passes on what belongs to the part.
class PartSink final : public TimelineSink {
 public:
  PartSink(TimelineSink& to, AroundPart around) : to_(to), around_(std::move(around)) {}
  enum class Now : uint8_t { kBefore, kWithin, kBehind };
  void now(Now n) { now_ = n; }
  bool within() const { return now_ == Now::kWithin; }
  // Nothing that comes makes a difference any more.
  bool done() const { return now_ == Now::kBehind && open_.empty(); }
  uint64_t slices() const { return slices_; }
  uint64_t gaps() const { return gaps_; }

  void track(const TimelineTrack& t) override { to_.track(t); }
  void function(const TimelineFunction& f) override { to_.function(f); }
  void slice(const Slice& s) override;
  void gap(const GapSlice& g) override;
  void event(const EventMark& e) override {
    if (within()) to_.event(e);
  }
  bool takes_sum(uint32_t, Time, Time) const override { return true; }

 private:
  TimelineSink& to_;
  const AroundPart around_;
  Now now_ = Now::kBefore;
  tsl::robin_set<uint64_t> open_;  // slices around those that were passed on
  uint64_t slices_ = 0, gaps_ = 0;
};

}  // namespace asof
