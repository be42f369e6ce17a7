// Sync points: A-Sync, Trace Info, and the address and context that follow. Segments start there; a segment's
// flow goes on into the next group, up to the address where the next segment's starts.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "arch/arm64/elements.h"
#include "arch/arm64/reference.h"
#include "arch/arm64/segments.h"
#include "arch/segments_from.h"
#include "arch/splitter.h"

namespace asof::arm64 {
namespace {

// Offsets in a segment have 32 bits.
constexpr uint64_t kMaxSegment = 1ULL << 31;
constexpr uint64_t kWindow = 1ULL << 14;  // bytes looked at together
constexpr uint64_t kFirstLook = 256;      // a sync group is below 100 bytes as a rule

// The A-Syncs of a stretch one after the other.
class SyncPoints {
 public:
  SyncPoints(const Stream& stream, const Stretch& s) : stream_(stream), s_(s), from_(s.begin) {}

  std::optional<uint64_t> next() {
    for (; found_.empty() && from_ < s_.end; look()) {
    }
    if (found_.empty()) return std::nullopt;
    const uint64_t at = found_.front();
    found_.pop_front();
    return at;
  }

 private:
  void look() {
    const uint64_t to = std::min(s_.end, from_ + kWindow);
    const auto bytes = stream_.bytes(from_, to, scratch_);
    for (size_t at = find_async(bytes, 0); at != SIZE_MAX; at = find_async(bytes, at + kAsyncSize)) {
      if (last_ && *last_ + kAsyncSize > from_ + at) continue;
      found_.push_back(*(last_ = from_ + at));
    }
    from_ = to == s_.end ? to : to - (kAsyncSize - 1);
  }

  const Stream& stream_;
  const Stretch s_;
  uint64_t from_;  // not looked at yet
  std::deque<uint64_t> found_;
  std::optional<uint64_t> last_;
  std::vector<uint8_t> scratch_;
};

// A sync point and what follows it.
struct Point {
  uint64_t at = 0;
  SyncGroup group;
};

// Reads the group at `at`; nothing after `limit` belongs to it.
SyncGroup read_group(const Stream& stream, uint64_t at, uint64_t limit, const PacketFormat& format,
                     std::vector<uint8_t>& scratch) {
  for (uint64_t look = kFirstLook;; look *= 16) {
    const uint64_t to = std::min(limit, at + look);
    SyncGroup g = read_sync_group(stream.bytes(at, to, scratch), format);
    if (g.has_start || to == limit || g.size + 64 < to - at) return g;
  }
}

// Those sync points after which the flow can start. The others stay inside the segment before.
class UsablePoints {
 public:
  UsablePoints(const Stream& stream, const Stretch& s, const PacketFormat& format)
      : stream_(stream), s_(s), format_(format), all_(stream, s), at_(all_.next()) {}

  std::optional<Point> next() {
    while (at_) {
      const auto following = all_.next();
      Point p{*at_, read_group(stream_, *at_, following.value_or(s_.end), format_, scratch_)};
      at_ = following;
      if (std::exchange(first_, false) || p.group.has_start) return p;
    }
    return std::nullopt;
  }

 private:
  const Stream& stream_;
  const Stretch s_;
  const PacketFormat& format_;
  SyncPoints all_;
  std::optional<uint64_t> at_;
  bool first_ = true;
  std::vector<uint8_t> scratch_;
};

// TRCCONFIGR.INSTP0: loads or stores take atoms as well. No kernel driver asks for that, and no decoder
// follows it.
constexpr uint32_t kLoadsAndStores = 6;

class AsyncSplitter final : public Splitter {
 public:
  AsyncSplitter(const Stream& stream, size_t stream_index, const Config& config, uint64_t start)
      : Splitter(stream, stream_index, "A-Sync"), config_(config), source_(config.sources.at(stream_index)) {
    if ((source_.protocol == Protocol::kEtm4 || source_.protocol == Protocol::kEte) &&
        (source_.configr & kLoadsAndStores) != 0) {
      before_ = not_decoded();
    } else {
      take_stretches(needs_reference(source_.protocol) ? 0 : start);
    }
  }

 private:
  void open(const Stretch& s) override;
  std::optional<uint64_t> point() const override {
    return ahead_.empty() ? std::nullopt : std::optional(ahead_.front().at);
  }
  Segment segment(const Stretch& s) override;
  Gap not_decoded() const;
  void look_ahead();

  const Config& config_;
  const Source& source_;
  const PacketFormat format_ = PacketFormat::of(source_);
  std::optional<UsablePoints> points_;
  std::deque<Point> ahead_;  // of the stretch: the next segment's, and two after it
};

// All of the stream.
Gap AsyncSplitter::not_decoded() const {
  Gap gap;
  gap.begin = stream_.begin();
  gap.end = stream_.end();
  gap.code = Code::kLoadStoreTrace;
  gap.reason = fmt::format(
      "the trace unit traced loads or stores (TRCCONFIGR {:#x}), which take atoms that "
      "cannot be distinguished from those of branches",
      source_.configr);
  return gap;
}

void AsyncSplitter::look_ahead() {
  while (points_ && ahead_.size() < 3) {
    auto point = points_->next();
    if (!point) {
      points_.reset();
      return;
    }
    ahead_.push_back(*std::move(point));
  }
}

void AsyncSplitter::open(const Stretch& s) {
  // ETMv3 and PTM are not taken apart: OpenCSD finds their sync points.
  if (needs_reference(source_.protocol)) {
    ahead_.push_back({s.begin, {}});
  } else {
    points_.emplace(stream_, s, format_);
  }
  look_ahead();
}

Segment AsyncSplitter::segment(const Stretch& s) {
  const Point point = ahead_.front();
  ahead_.pop_front();
  look_ahead();
  const bool last = ahead_.empty();
  Segment g = empty_segment();
  g.begin = point.at;
  g.end = last ? s.end : ahead_[0].at;
  // What decides over speculation that is open at the sync point may come much later.
  g.tail_end = last                    ? s.end
               : format_.max_spec == 0 ? ahead_[0].at + ahead_[0].group.size
               : ahead_.size() > 1     ? ahead_[1].at
                                       : s.end;
  if (config_.time && point.group.timestamp) g.start_time = config_.time->to_perf(*point.group.timestamp);
  take_gap(g);
  if (g.tail_end - g.begin > kMaxSegment) {
    before_ = no_sync_gap(g.begin + kMaxSegment, g.end);
    g.end = g.tail_end = g.begin + kMaxSegment;
  }
  return g;
}

}  // namespace

std::unique_ptr<SegmentSource> split_stream(const Stream& stream, size_t stream_index, const Config& config,
                                            uint64_t from) {
  const auto make = [&](uint64_t start) {
    return std::make_unique<AsyncSplitter>(stream, stream_index, config, start);
  };
  if (from <= stream.begin()) return make(0);
  return std::make_unique<SegmentsFrom>(stream, from, false, make);
}

}  // namespace asof::arm64
