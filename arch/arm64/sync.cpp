// Sync points: A-Sync, Trace Info, and the address and context that follow. Segments start there; a segment's
// flow goes on into the next group, up to the address where the next segment's starts.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "arch/arm64/elements.h"
#include "arch/arm64/reference.h"
#include "arch/arm64/segments.h"

namespace asof::arm64 {
namespace {

// [begin, end) of trace without a hole in it.
struct Stretch {
  uint64_t begin = 0, end = 0;
};

// Offsets in a segment have 32 bits.
constexpr uint64_t kMaxSegment = 1ULL << 31;
constexpr uint64_t kWindow = 1ULL << 14;  // bytes looked at together
constexpr uint64_t kFirstLook = 256;      // a sync group is below 100 bytes as a rule

std::vector<Stretch> stretches_of(const Stream& stream) {
  std::vector<Stretch> out;
  for (const StreamPiece& p : stream.pieces) {
    const bool joins = !out.empty() && !p.discontinuity && out.back().end == p.offset;
    if (!joins) out.push_back({p.offset, p.offset});
    out.back().end = p.offset + p.size();
  }
  return out;
}

std::vector<uint64_t> find_sync_points(const Stream& stream, const Stretch& s) {
  std::vector<uint64_t> out;
  std::vector<uint8_t> scratch;
  for (uint64_t from = s.begin; from < s.end;) {
    const uint64_t to = std::min(s.end, from + kWindow);
    const auto bytes = stream.bytes(from, to, scratch);
    for (size_t at = find_async(bytes, 0); at != SIZE_MAX; at = find_async(bytes, at + kAsyncSize)) {
      if (out.empty() || out.back() + kAsyncSize <= from + at) out.push_back(from + at);
    }
    if (to == s.end) break;
    from = to - (kAsyncSize - 1);
  }
  return out;
}

// A sync point and what follows it.
struct Point {
  uint64_t at = 0;
  SyncGroup group;
};

// Reads the group at `at`; nothing behind `limit` belongs to it.
SyncGroup read_group(const Stream& stream, uint64_t at, uint64_t limit, const PacketFormat& format,
                     std::vector<uint8_t>& scratch) {
  for (uint64_t look = kFirstLook;; look *= 16) {
    const uint64_t to = std::min(limit, at + look);
    SyncGroup g = read_sync_group(stream.bytes(at, to, scratch), format);
    if (g.has_start || to == limit || g.size + 64 < to - at) return g;
  }
}

// Those sync points behind which the flow can start. The others stay inside the segment before.
std::vector<Point> usable_points(const Stream& stream, const Stretch& s, const PacketFormat& format) {
  const std::vector<uint64_t> all = find_sync_points(stream, s);
  std::vector<Point> out;
  std::vector<uint8_t> scratch;
  for (size_t i = 0; i < all.size(); ++i) {
    const uint64_t limit = i + 1 < all.size() ? all[i + 1] : s.end;
    Point p{all[i], read_group(stream, all[i], limit, format, scratch)};
    if (p.group.has_start || out.empty()) out.push_back(std::move(p));
  }
  return out;
}

// TRCCONFIGR.INSTP0: loads or stores take atoms as well. No kernel driver asks for that, and no decoder
// follows it.
constexpr uint32_t kLoadsAndStores = 6;

// All of a stream, not decoded.
std::vector<Segment> not_decoded(const Stream& stream, size_t stream_index, const char* code,
                                 std::string reason) {
  Gap gap;
  gap.begin = stream.begin();
  gap.end = stream.end();
  gap.code = code;
  gap.reason = std::move(reason);
  Segment g;
  g.stream = stream_index;
  g.begin = g.end = g.tail_end = gap.end;
  g.before = std::move(gap);
  return {std::move(g)};
}

Gap no_sync_gap(uint64_t begin, uint64_t end) {
  Gap g;
  g.begin = begin;
  g.end = end;
  g.code = "E-DATA-002";
  g.reason = fmt::format("no sync point (A-Sync) in {} bytes of trace", end - begin);
  return g;
}

// Trace that was lost in front of the sync point (after `previous`), as a gap of no bytes but of time.
std::optional<Gap> recorded_loss(const Stream& stream, uint64_t previous, const Segment& segment) {
  for (const StreamLoss& loss : stream.losses) {
    if (loss.offset < previous || loss.offset > segment.begin) continue;
    if (loss.offset == previous && segment.index != 0) continue;
    Gap g;
    g.begin = loss.offset;
    g.end = segment.begin;
    g.code = loss.code.c_str();
    g.reason = loss.bytes ? fmt::format("{} ({} bytes)", loss.reason, *loss.bytes) : loss.reason;
    g.time = {std::min(loss.time, segment.start_time), segment.start_time};
    return g;
  }
  return std::nullopt;
}

}  // namespace

std::vector<Segment> split_stream(const Stream& stream, size_t stream_index, const Config& config) {
  std::vector<Segment> out;
  std::optional<Gap> before;
  const Source& source = config.sources.at(stream_index);
  if ((source.protocol == Protocol::kEtm4 || source.protocol == Protocol::kEte) &&
      (source.configr & kLoadsAndStores) != 0) {
    return not_decoded(
        stream, stream_index, "E-DATA-004",
        fmt::format("the trace unit traced loads or stores (TRCCONFIGR {:#x}), which take atoms that "
                    "cannot be told from those of branches",
                    source.configr));
  }
  const PacketFormat format = PacketFormat::of(source);
  const bool whole = needs_reference(source.protocol);
  for (const Stretch& s : stretches_of(stream)) {
    // ETMv3 and PTM are not taken apart: OpenCSD finds their sync points.
    const std::vector<Point> points =
        whole ? std::vector<Point>{{s.begin, {}}} : usable_points(stream, s, format);
    if (points.empty() || points.front().at > s.begin) {
      const uint64_t end = points.empty() ? s.end : points.front().at;
      if (before)
        before->end = end;
      else
        before = no_sync_gap(s.begin, end);
    }
    for (size_t i = 0; i < points.size(); ++i) {
      const bool last = i + 1 == points.size();
      Segment g;
      g.stream = stream_index;
      g.index = out.size();
      g.begin = points[i].at;
      g.end = last ? s.end : points[i + 1].at;
      // What decides over speculation that is open at the sync point may come much later.
      g.tail_end = last                    ? s.end
                   : format.max_spec == 0  ? points[i + 1].at + points[i + 1].group.size
                   : i + 2 < points.size() ? points[i + 2].at
                                           : s.end;
      if (config.time && points[i].group.timestamp) {
        g.start_time = config.time->to_perf(*points[i].group.timestamp);
      }
      // Only where the flow does not run on from the segment before: inside one, a loss has no place.
      if (i == 0) {
        g.before = recorded_loss(stream, out.empty() ? 0 : out.back().begin, g);
        if (!g.before) g.before = std::move(before);
        before.reset();
      }
      if (g.tail_end - g.begin > kMaxSegment) {
        before = no_sync_gap(g.begin + kMaxSegment, g.end);
        g.end = g.tail_end = g.begin + kMaxSegment;
      }
      out.push_back(std::move(g));
    }
  }
  if (before) {  // trace after the last sync point of the stream: an empty segment carries the gap
    Segment g;
    g.stream = stream_index;
    g.index = out.size();
    g.begin = g.end = g.tail_end = before->end;
    g.before = std::move(before);
    out.push_back(std::move(g));
  }
  return out;
}

}  // namespace asof::arm64
