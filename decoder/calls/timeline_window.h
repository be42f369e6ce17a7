// What is between the call tracker and a timeline's sink: WindowSink cuts at the ends of the requested time,
// BlockHolder holds straight runs back until their ends are known.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "decoder/calls/timeline.h"

namespace asof {

// A trace has a time only now and then: runs between two instants have the first as their begin, and the
// second, which comes later, as their end (Step::time: no bounds).
class BlockHolder {
 public:
  BlockHolder(size_t streams, TimelineSink& to) : to_(to), streams_(streams) {}

  // A stream's trace has come to `t`.
  void time(size_t stream, Time t);
  // A run has begun; it is added when it has ended.
  void begun(size_t stream, Time t);
  void add(const BlockSlice& block);
  // The branch that was last on a stream led to `to`: the next block that is added ends in it.
  void led_to(size_t stream, Addr to) { streams_[stream].led = to; }
  // Nothing more comes of a stream, whose trace ends at `until` (kTimeMax: unknown).
  void finish(size_t stream, Time until);

 private:
  // Runs beyond this many do not wait for their end to be known.
  static constexpr size_t kMost = size_t{1} << 16U;
  struct Stream {
    std::vector<BlockSlice> held;  // all begin at one time
    Addr led = 0;
    Time begin = kTimeMax;  // of the run that is not over
    Time later = kTimeMax;  // the first time after it
  };
  void give(Stream& s, Time end);

  TimelineSink& to_;
  std::vector<Stream> streams_;
  uint64_t next_id_ = 1, instructions_ = 0;
};

class WindowSink final : public TimelineSink {
 public:
  // `counted`: only gaps of this time are counted.
  WindowSink(TimelineSink& to, size_t streams, TimeBounds window, TimeBounds counted)
      : to_(to), window_(window), counted_(counted), blocks_(streams, to) {}

  void track(const TimelineTrack& t) override { to_.track(t); }
  void function(const TimelineFunction& f) override { to_.function(f); }
  void slice(const Slice& s) override;
  void run(const RunSlice& r) override;
  void gap(const GapSlice& g) override;
  void event(const EventMark& e) override;
  bool takes_sum(uint32_t track, Time begin, Time end) const override {
    return to_.takes_sum(track, begin, end);
  }
  void sum(const CallSums& sums, uint32_t track, uint64_t parent) override;
  void block(const BlockSlice& b) override { to_.takes_blocks_at_once() ? to_.block(b) : blocks_.add(b); }
  void poke(const PokeSlice& p) override;
  void lifetime(const LifetimeSlice& l) override;
  void counter(const CounterPoint& p) override;

  BlockHolder& blocks() { return blocks_; }
  bool contains(Time t) const { return t >= window_.lo && t <= window_.hi; }
  // How many went on; of gaps, those of the counted time.
  uint64_t slices() const { return slices_; }
  uint64_t gaps() const { return gaps_; }
  // The value that is valid at the beginning of the window is delivered as of then. After the last counter.
  void finish();

 private:
  template <class T>
  bool clip(T& s) const;

  TimelineSink& to_;
  const TimeBounds window_;
  const TimeBounds counted_;
  BlockHolder blocks_;
  uint64_t slices_ = 0, gaps_ = 0;
  bool version_before_ = false;
  CounterPoint version_;  // the last one before the window
};

}  // namespace asof
