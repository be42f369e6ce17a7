// SegmentPlan: the segments of all streams in the order of delivery, found on demand. It keeps a few segments
// of each stream, however long the trace is.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <vector>

#include "arch/scan_ahead.h"
#include "decoder/pipeline/pipeline.h"

namespace asof {

// Not thread-safe, but for scan_ahead() and forget_passed(). Capture and Arch must outlive it.
class SegmentPlan {
 public:
  // `reached`: continue_pipeline(); may have fewer than there are streams.
  SegmentPlan(const Arch& arch, const Capture& capture, const PipelineOptions& options, ChunkOrder order,
              const std::vector<Time>& reached = {});
  // nullopt: that was all. Start times ascend within a stream; a segment without a time of its own is at
  // its predecessor's.
  std::optional<Segment> next();
  // Does a part of what next() would do, for the stream that is next or one of those behind it. Beside next(), too.
  // `most`: parts of a stream that may wait. False: there is nothing to do.
  bool scan_ahead(size_t most);
  uint64_t trace_bytes() const { return trace_bytes_; }  // of the streams that are wanted
  // Releases memory of trace that is no longer needed: the whole window before the one that the segment
  // reaches. Another worker may still use it; it reads those pages from the file again. Thread-safe.
  void forget_passed(const Segment& segment) const;

 private:
  // The segments of one stream that may hold part of the wanted time, and those without any time; last, the begin
  // of the first one behind it.
  struct Lane {
    std::unique_ptr<SegmentSource> source;
    ScanAhead* ahead = nullptr;   // source, if it can
    std::deque<Segment> found;    // the next ones, not examined yet; up to one that has a time
    std::optional<Segment> head;  // the next one that is wanted
    Time beyond = kTimeMax;       // when what follows its range begins
    Time last = kTimeMin;
    uint64_t end = UINT64_MAX;  // what begins here or later is not wanted
    bool open = false, ended = false;
  };
  void open(Lane& lane) const;
  bool find(Lane& lane) const;
  std::optional<Segment> take(Lane& lane) const;
  Time end_before_found(Lane& lane) const;
  void advance(Lane& lane) const;

  const Capture& capture_;
  const TimeBounds time_;
  const ChunkOrder order_;
  std::vector<Lane> lanes_;              // by stream
  using Turn = std::pair<Time, size_t>;  // start time, lane
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns_;
  std::atomic<size_t> lane_{
      0};  // by stream: the one that next() uses; by time: whose turn it is in scan_ahead()
  uint64_t trace_bytes_ = 0;
  uint64_t window_ = 0;  // of forget_passed()
};

}  // namespace asof
