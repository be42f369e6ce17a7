// SegmentsFrom: the segments of a stream from some offset on, found without reading what precedes it. They are
// exactly those of the whole stream that begin there or later.
#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "arch/arch.h"
#include "arch/scan_ahead.h"

namespace asof {

// Where a search in the middle of a stream may begin: after a byte that is in no sync point (PSB, A-Sync), so
// that the same ones are found as from the start of the stream. nullopt: there is none in [from, to).
std::optional<uint64_t> search_start(const Stream& stream, uint64_t from, uint64_t to);

class SegmentsFrom final : public SegmentSource, public ScanAhead {
 public:
  // Segments from a start as search_start() gives it, or from 0: all of them.
  using Make = std::function<std::unique_ptr<SegmentSource>(uint64_t start)>;
  // `timed`: what a segment begins with may depend on the time of those before it (PsbSplitter: in a guest a sync
  // point has none of its own).
  SegmentsFrom(const Stream& stream, uint64_t from, bool timed, const Make& make);
  std::optional<Segment> next() override;
  bool scan_ahead(size_t most) override { return ahead_ != nullptr && ahead_->scan_ahead(most); }

 private:
  bool start(const Make& make, uint64_t at, uint64_t from, bool timed);

  std::unique_ptr<SegmentSource> source_;
  ScanAhead* ahead_ = nullptr;  // source_, if it can
  std::optional<Segment> first_;
};

}  // namespace asof
