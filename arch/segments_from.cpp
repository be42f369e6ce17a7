#include "arch/segments_from.h"

#include <algorithm>
#include <utility>

namespace asof {
namespace {

constexpr uint64_t kFirstBack = 64 << 10;  // a sync point is made every few kilobytes
constexpr uint64_t kLook = 4096;

bool in_sync_points(uint8_t byte) { return byte == 0 || byte == 0x80 || byte == 2 || byte == 0x82; }

}  // namespace

std::optional<uint64_t> search_start(const Stream& stream, uint64_t from, uint64_t to) {
  std::vector<uint8_t> scratch;
  auto next = std::ranges::upper_bound(stream.pieces, from, {}, &StreamPiece::offset);
  if (next != stream.pieces.begin()) --next;
  for (; next != stream.pieces.end() && next->offset < to; ++next) {
    const StreamPiece& piece = *next;
    const uint64_t end = std::min(to, piece.offset + piece.size());
    for (uint64_t at = std::max(from, piece.offset); at < end;) {
      const uint64_t until = std::min(end, at + kLook);
      const auto bytes = stream.bytes(at, until, scratch);
      const auto found = std::ranges::find_if_not(bytes, in_sync_points);
      if (found != bytes.end()) return at + static_cast<uint64_t>(found - bytes.begin()) + 1;
      at = until;
    }
  }
  return std::nullopt;
}

SegmentsFrom::SegmentsFrom(const Stream& stream, uint64_t from, bool timed, const Make& make) {
  for (uint64_t back = kFirstBack; from > stream.begin() && from - stream.begin() > back; back *= 4) {
    const auto at = search_start(stream, from - back, from);
    if (at && start(make, *at, from, timed)) return;
    if (back > UINT64_MAX / 4) break;
  }
  start(make, 0, from, false);
}

// Of the segments in front, the first may begin with what belongs to the one before, and the next depends on where that
// one began: with two of them, all that follow are those of the whole stream.
bool SegmentsFrom::start(const Make& make, uint64_t at, uint64_t from, bool timed) {
  source_ = make(at);
  ahead_ = dynamic_cast<ScanAhead*>(source_.get());
  size_t passed = 0;
  bool has_time = false;
  while ((first_ = source_->next()) && first_->begin < from) {
    has_time = passed != 0 && first_->start_time != kTimeMin;
    ++passed;
  }
  return at == 0 || (passed > 1 && (has_time || !timed));
}

std::optional<Segment> SegmentsFrom::next() {
  if (first_) return std::exchange(first_, std::nullopt);
  return source_->next();
}

}  // namespace asof
