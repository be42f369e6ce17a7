// Sync points: PSB and the status packets up to PSBEND. Segments start there; the address in the next one's
// PSB+ is where a segment's flow must arrive.
#include <fmt/format.h>

#include "arch/x86/flow.h"
#include "arch/x86/segments.h"

namespace asof::x86 {

SyncGroup read_sync_group(std::span<const uint8_t> bytes, const Clock& clock, const Errata& errata) {
  SyncGroup g;
  g.clock = clock;
  const uint8_t* p = bytes.data();
  const uint8_t* const end = p + bytes.size();
  Addr last_ip = 0;
  bool done = false;
  while (!done) {
    const Packet k = read_packet(p, end);
    switch (k.type) {
      case Pk::kFup:
        g.has_ip = update_ip(k.ipc, k.value, last_ip);
        g.ip = last_ip;
        break;
      case Pk::kModeExec:
        g.mode = (k.value & 1) != 0 ? 64 : (k.value & 2) != 0 ? 32 : 16;
        break;
      case Pk::kModeTsx:
        g.transaction = (k.value & 1) != 0;
        break;
      case Pk::kPip:
        g.cr3 = k.value;
        g.has_cr3 = true;
        break;
      case Pk::kTsc:
      case Pk::kTma:
      case Pk::kMtc:
      case Pk::kCyc:
      case Pk::kCbr:
        g.clock.update(k);
        break;
      case Pk::kPsbend:
        done = true;
        break;
      case Pk::kOvf:
        // An OVF ends a PSB+ too; it is left for the flow.
        g.overflow = true;
        g.size = static_cast<size_t>(p - bytes.data());
        return g;
      case Pk::kPad:
      case Pk::kVmcs:
      case Pk::kMnt:
        break;
      case Pk::kPsb:
        if (p == bytes.data()) break;
        [[fallthrough]];
      default:
        g.bad = true;
        g.size = static_cast<size_t>(p - bytes.data());
        return g;
    }
    p += k.size;
  }
  g.size = static_cast<size_t>(p - bytes.data());
  // BDM70: the FUP counts for nothing when the next thing is a TIP.PGE.
  if (errata.bdm70 && g.has_ip && pge_ahead(p, end)) g.has_ip = false;
  return g;
}

namespace {

// [begin, end) of trace without a hole in it.
struct Stretch {
  size_t first_piece = 0, last_piece = 0;
  uint64_t begin = 0, end = 0;
};

std::vector<Stretch> stretches_of(const Stream& stream) {
  std::vector<Stretch> out;
  for (size_t i = 0; i < stream.pieces.size(); ++i) {
    const StreamPiece& p = stream.pieces[i];
    const bool joins = !out.empty() && !p.discontinuity && out.back().end == p.offset;
    if (!joins) out.push_back({i, i, p.offset, p.offset});
    out.back().last_piece = i;
    out.back().end = p.offset + p.bytes.size();
  }
  return out;
}

// Trace that is looked through from begin to end need not stay in memory.
class Passing {
 public:
  Passing(const Stream& stream, uint64_t begin) : stream_(stream), held_(begin) {}
  void reach(uint64_t at) {
    constexpr uint64_t kHeld = 16 << 20;
    if (at - held_ >= kHeld) leave(at);
  }
  void leave(uint64_t at) {
    stream_.forget(held_, at);
    held_ = at;
  }

 private:
  const Stream& stream_;
  uint64_t held_;
};

// All PSBs of a stretch, also those that begin in one piece and end in the next.
std::vector<uint64_t> find_sync_points(const Stream& stream, const Stretch& s) {
  std::vector<uint64_t> out;
  std::vector<uint8_t> scratch;
  for (size_t i = s.first_piece; i <= s.last_piece; ++i) {
    const StreamPiece& p = stream.pieces[i];
    Passing passing(stream, p.offset);
    for (size_t at = find_psb(p.bytes, 0); at != SIZE_MAX; at = find_psb(p.bytes, at + kPsbSize)) {
      out.push_back(p.offset + at);
      passing.reach(p.offset + at);
    }
    passing.leave(p.offset + p.bytes.size());
    if (i == s.last_piece) break;
    const uint64_t seam = p.offset + p.bytes.size();
    const uint64_t from = seam - std::min<uint64_t>(kPsbSize - 1, seam - s.begin);
    const uint64_t to = std::min<uint64_t>(seam + kPsbSize - 1, s.end);
    const size_t hit = find_psb(stream.bytes(from, to, scratch), 0);
    if (hit != SIZE_MAX && (out.empty() || out.back() + kPsbSize <= from + hit)) out.push_back(from + hit);
  }
  return out;
}

Gap no_sync_gap(uint64_t begin, uint64_t end) {
  Gap g;
  g.begin = begin;
  g.end = end;
  g.code = "E-DATA-002";
  g.reason = fmt::format("no sync point (PSB) in {} bytes of trace", end - begin);
  return g;
}

// Trace that was lost in front of the sync point `at` (after `previous`), as a gap of no bytes but of time.
std::optional<Gap> recorded_loss(const Stream& stream, uint64_t previous, const Segment& segment) {
  for (const StreamLoss& loss : stream.losses) {
    if (loss.offset <= previous || loss.offset > segment.begin) continue;
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

uint64_t reference_at(const Stream& stream, uint64_t offset) {
  uint64_t reference = 0;
  for (const StreamPiece& p : stream.pieces) {
    if (p.reference != 0 && (reference == 0 || p.offset <= offset)) reference = p.reference;
    if (p.offset > offset && reference != 0) break;
  }
  return reference;
}

std::vector<Segment> split_stream(const Stream& stream, size_t stream_index, const Config& config,
                                  const Errata& errata) {
  std::vector<Segment> out;
  std::optional<Gap> before;
  std::vector<uint8_t> scratch;
  for (const Stretch& s : stretches_of(stream)) {
    const std::vector<uint64_t> points = find_sync_points(stream, s);
    if (points.empty() || points.front() > s.begin) {
      const uint64_t end = points.empty() ? s.end : points.front();
      if (before)
        before->end = end;
      else
        before = no_sync_gap(s.begin, end);
    }
    Passing passing(stream, s.begin);
    for (size_t i = 0; i < points.size(); ++i) {
      passing.reach(points[i]);
      Segment g;
      g.stream = stream_index;
      g.index = out.size();
      g.begin = points[i];
      g.end = i + 1 < points.size() ? points[i + 1] : s.end;
      constexpr uint64_t kMaxGroup = 512;  // a PSB+ is below 100 bytes; PADs may stretch it
      g.tail_end = std::min(s.end, g.end + (i + 1 < points.size() ? kMaxGroup : 0));
      const auto head = stream.bytes(g.begin, std::min(s.end, g.begin + kMaxGroup), scratch);
      const SyncGroup group = read_sync_group(head, Clock(config, reference_at(stream, g.begin)), errata);
      g.start_time = group.clock.now();
      // Only where the flow does not run on from the segment before: inside one, a loss is known but has no
      // place.
      if (i == 0) {
        g.before = recorded_loss(stream, out.empty() ? 0 : out.back().begin, g);
        if (!g.before) g.before = std::move(before);
      }
      before.reset();
      out.push_back(std::move(g));
    }
    passing.leave(s.end);
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

}  // namespace asof::x86
