// SliceSink: a timeline's slices as a table, a line each as they end, nothing folded: comma-separated values
// or JSON lines. Columns: docs/timeline.md.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "decoder/calls/timeline.h"

namespace asof {

class SliceSink final : public TimelineSink {
 public:
  enum class Format : uint8_t { kCsv, kJsonLines };
  using Write = std::function<void(std::string_view)>;
  // Stops when `stop` says so.
  SliceSink(Format format, Write write, std::function<bool()> stop)
      : format_(format), write_(std::move(write)), stop_(std::move(stop)) {}

  void begin(const Capture& capture) override;
  void track(const TimelineTrack& t) override { tracks_[t.id] = t; }
  void function(const TimelineFunction& f) override;
  void slice(const Slice& s) override;
  bool stopped() const override { return stop_(); }

  uint64_t slices() const { return slices_; }

 private:
  void csv(const Slice& s, const TimelineTrack& track, const TimelineFunction& f);
  void json(const Slice& s, const TimelineTrack& track, const TimelineFunction& f);

  Format format_;
  Write write_;
  std::function<bool()> stop_;
  const Capture* capture_ = nullptr;
  std::map<uint32_t, TimelineTrack> tracks_;
  std::vector<TimelineFunction> functions_;
  uint64_t slices_ = 0;
};

}  // namespace asof
