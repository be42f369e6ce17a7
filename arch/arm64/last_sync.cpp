#include "arch/arm64/last_sync.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "arch/arm64/elements_plain.h"

namespace asof::arm64 {
namespace {

// Trace is looked through backwards in windows of this size, up to this much of it. More without any
// exception is not met but in user code, whose text does not change this way.
constexpr uint64_t kWindow = 1ULL << 13, kMostBytes = 1ULL << 20;

// The last event in `bytes`, which start with an A-Sync; `unknown` where no timestamp precedes it.
// kTimeMin: there is none.
Time last_in(std::span<const uint8_t> bytes, const PacketFormat& format,
             const std::optional<TimeConversion>& clock, Time unknown) {
  struct Taker {
    const std::optional<TimeConversion>& clock;
    Time passed;
    static ElementParser::Take atoms(uint32_t, uint32_t) { return ElementParser::Take::kOn; }
    static ElementParser::Take address(Addr, uint8_t, uint32_t) { return ElementParser::Take::kOn; }
    void time(uint64_t counter, uint32_t) {
      if (clock) passed = std::max(passed, clock->to_perf(counter));
    }
  };
  ElementParser elements(format);
  elements.start(bytes, bytes.size());
  Taker taker{clock, unknown};
  Time last = kTimeMin;
  for (size_t i = 0;; ++i) {
    elements.drop_before(i);
    i += elements.pass_plain(taker).elements;
    if (!elements.has(i)) return last;
    const Element& e = elements[i];
    if (e.kind == El::kTime) taker.time(e.value, e.time);
    if (e.synchronises()) last = std::max(last, taker.passed);
  }
}

// Looks through one stretch of trace without a hole, from its end on.
class Search {
 public:
  Search(const Stream& stream, const PacketFormat& format, const std::optional<TimeConversion>& clock)
      : stream_(stream), format_(format), clock_(clock) {}

  bool exhausted() const { return looked_at_ >= kMostBytes; }
  // Before the event was found.
  uint64_t looked_at_in_vain() const { return in_vain_; }

  Time in(uint64_t begin, uint64_t end) {
    for (uint64_t to = end; to > begin && !exhausted();) {
      in_vain_ = looked_at_;
      uint64_t from = to;
      size_t sync = SIZE_MAX;
      std::span<const uint8_t> bytes;
      for (uint64_t look = kWindow; sync == SIZE_MAX && from > begin && look <= kMostBytes; look *= 4) {
        from = std::max(begin, to - std::min(to, look));
        bytes = stream_.bytes(from, to, scratch_);
        sync = last_async(bytes);
      }
      looked_at_ += to - from;
      if (sync == SIZE_MAX) break;
      const Time recorded = recorded_bounds(stream_, from + sync, to).lo;
      const Time found = last_in(bytes.subspan(sync), format_, clock_, recorded);
      if (found != kTimeMin) return found;
      to = from + sync;
    }
    return kTimeMin;
  }

 private:
  static size_t last_async(std::span<const uint8_t> bytes) {
    size_t last = SIZE_MAX;
    for (size_t at = find_async(bytes, 0); at != SIZE_MAX; at = find_async(bytes, at + kAsyncSize)) last = at;
    return last;
  }

  const Stream& stream_;
  const PacketFormat& format_;
  const std::optional<TimeConversion>& clock_;
  std::vector<uint8_t> scratch_;
  uint64_t looked_at_ = 0, in_vain_ = 0;
};

// Where the stretch without a hole begins that has the byte in front of `at`; or a place in it at or before
// `enough`.
uint64_t stretch_begin(const Stream& stream, uint64_t at, uint64_t enough) {
  const auto& pieces = stream.pieces;
  auto p = std::ranges::lower_bound(pieces, at, {}, &StreamPiece::offset);
  if (p == pieces.begin()) return 0;
  --p;
  while (p->offset > enough && p != pieces.begin() && !p->discontinuity &&
         std::prev(p)->offset + std::prev(p)->size() == p->offset)
    --p;
  return p->offset;
}

}  // namespace

TimeBounds recorded_bounds(const Stream& stream, uint64_t begin, uint64_t end) {
  TimeBounds b = stream.bounds;
  const auto& pieces = stream.pieces;
  auto p = std::ranges::upper_bound(pieces, begin, {}, &StreamPiece::offset);
  if (p != pieces.begin()) b = (--p)->time;
  for (; p != pieces.end() && p->offset < end; ++p) {
    b = {std::min(b.lo, p->time.lo), std::max(b.hi, p->time.hi)};
  }
  return {std::max(b.lo, stream.bounds.lo), std::min(b.hi, stream.bounds.hi)};
}

// Trace that is missing in between changes nothing: what came before it was before.
Time LastSync::before(const Stream& stream, uint64_t before, const PacketFormat& format,
                      const std::optional<TimeConversion>& clock) {
  if (known_.stream == &stream && known_.at == before && known_.has_clock == clock.has_value())
    return known_.time;
  known_ = {&stream, before, clock.has_value(), kTimeMin, 0};
  Search search(stream, format, clock);
  const auto& pieces = stream.pieces;
  uint64_t end = before;
  for (size_t i = pieces.size(); i-- > 0 && !search.exhausted();) {
    if (pieces[i].offset >= before) continue;
    const bool joins =
        i > 0 && !pieces[i].discontinuity && pieces[i - 1].offset + pieces[i - 1].size() == pieces[i].offset;
    if (joins) continue;
    known_.time = search.in(pieces[i].offset, end);
    known_.passed_over = search.looked_at_in_vain();
    if (known_.time != kTimeMin) break;
    if (i > 0) end = pieces[i - 1].offset + pieces[i - 1].size();
  }
  return known_.time;
}

// What before(segment.end) would say, which starts with a window that ends there and reaches back to the
// segment's sync point, if that is the last one in it.
void LastSync::walked(const Stream& stream, const Walked& segment) {
  if (known_.stream == nullptr) return;  // nobody asks
  const Known last = std::exchange(known_, Known{});
  known_.stream = &stream;
  known_.at = UINT64_MAX;
  uint64_t look = kWindow;
  while (look <= kMostBytes && segment.end - segment.begin > look) look *= 4;
  if (look > kMostBytes || segment.begin == 0 || find_async(segment.bytes, 1) != SIZE_MAX) return;
  const uint64_t window = segment.end - std::min(segment.end, look);
  const uint64_t begin = stretch_begin(stream, segment.end, std::min(window, segment.begin - 1));
  if (segment.begin <= begin) return;
  const Time recorded = recorded_bounds(stream, segment.begin, segment.end).lo;
  const Time found = segment.passed ? std::max(*segment.passed, recorded) : kTimeMin;
  if (found != kTimeMin) {
    known_ = {&stream, segment.end, segment.has_clock, found, 0};
  } else if (last.stream == &stream && last.at == segment.begin && last.has_clock == segment.has_clock) {
    known_ = {&stream, segment.end, segment.has_clock, last.time,
              last.passed_over + std::min(segment.end - begin, look)};
    if (known_.passed_over >= kMostBytes) known_.time = kTimeMin;
  }
}

}  // namespace asof::arm64
