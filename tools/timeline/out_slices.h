// SliceSink: a timeline's slices as a table, a line each as they end, nothing folded: comma-separated values
// or JSON lines. Columns: docs/timeline.md.
#pragma once
#include <tsl/robin_map.h>

#include <functional>
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
  void track(const TimelineTrack& t) override;
  void function(const TimelineFunction& f) override;
  void slice(const Slice& s) override;
  bool stopped() const override { return stop_(); }

  uint64_t slices() const { return slices_; }

 private:
  void csv(const Slice& s, int32_t tid);
  void json(const Slice& s, int32_t tid);
  std::string_view last_fields(const Slice& s);

  Format format_;
  Write write_;
  std::function<bool()> stop_;
  const Capture* capture_ = nullptr;
  // What rows have in common, as it is written.
  struct Track {
    int32_t tid = -1;
    std::string fields;  // track_kind and track
  };
  std::vector<Track> tracks_;                          // by id
  std::vector<std::string> functions_;                 // by id: function, kind, dso
  tsl::robin_map<uint64_t, std::string> last_fields_;  // flags, source, confidence
  std::string row_;
  uint64_t slices_ = 0;
};

}  // namespace asof
