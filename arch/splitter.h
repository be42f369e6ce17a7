// Splitter: what finding the segments of a stream has in common whatever a sync point looks like. Trace
// without a hole in it is gone through from sync point to sync point; what is in front of the first one is a
// gap.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "arch/arch.h"

namespace asof {

// [begin, end) of trace without a hole in it.
struct Stretch {
  size_t first_piece = 0, last_piece = 0;
  uint64_t begin = 0, end = 0;
};

class Splitter : public SegmentSource {
 public:
  std::optional<Segment> next() final;

 protected:
  // `sync_point`: its name, for reports. `stream` must outlive the Splitter.
  Splitter(const Stream& stream, size_t stream_index, std::string_view sync_point)
      : stream_(stream), stream_index_(stream_index), sync_point_(sync_point) {}

  // From `start` on (segments_from.h); 0: all.
  void take_stretches(uint64_t start);
  const std::vector<Stretch>& stretches() const { return stretches_; }
  // Goes to the first sync point of a stretch, if it has one.
  virtual void open(const Stretch& stretch) = 0;
  // The one that the next segment starts at.
  virtual std::optional<uint64_t> point() const = 0;
  // That segment; goes on to the next one.
  virtual Segment segment(const Stretch& stretch) = 0;
  // Is there nothing in [begin, end) that could describe an instruction? What is before the first
  // sync point of a stretch is then no loss.
  virtual bool tells_nothing(const Stretch&, uint64_t /*begin*/, uint64_t /*end*/) { return false; }

  Segment empty_segment();
  // Gives the segment the gap in front of it. Only where the flow does not run on from the segment before:
  // inside a stretch, a loss is known but has no place.
  void take_gap(Segment& segment);
  Gap no_sync_gap(uint64_t begin, uint64_t end) const;

  const Stream& stream_;
  std::optional<Gap> before_;  // trace that is in no segment

 private:
  std::optional<Gap> recorded_loss(uint64_t from, const Segment& segment) const;
  std::optional<Gap> loss_at_end();
  void enter(const Stretch& stretch);

  const size_t stream_index_;
  const std::string_view sync_point_;
  std::vector<Stretch> stretches_;
  size_t stretch_ = 0;
  bool open_ = false;        // this stretch
  bool first_ = false;       // the next segment is the first of its stretch
  uint64_t last_begin_ = 0;  // of the segment before
  bool has_last_ = false;    // there was one
  bool ended_ = false;       // what was lost behind the end has been given
};

}  // namespace asof
