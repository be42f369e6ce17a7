// Sync points: PSB and the status packets up to PSBEND. Segments start there; the address in the next one's
// PSB+ is where a segment's flow must arrive.
#include <algorithm>

#include "arch/segments_from.h"
#include "arch/splitter.h"
#include "arch/x86/flow.h"
#include "arch/x86/segments.h"
#include "arch/x86/time_order.h"

namespace asof::x86 {

namespace {

// What the PIP of a group says of its TSC, which precedes it; without one it is as before.
void take_pip(const uint8_t* p, const uint8_t* end, Clock& clock) {
  for (;;) {
    const Packet k = read_packet(p, end);
    if (k.type == Pk::kPip) {
      clock.update(k);
      return;
    }
    if (k.type == Pk::kPsbend || k.type == Pk::kOvf || k.type == Pk::kEnd || k.type == Pk::kBad) return;
    p += k.size;
  }
}

}  // namespace

SyncGroup read_sync_group(std::span<const uint8_t> bytes, const Clock& clock, const Errata& errata) {
  SyncGroup g;
  g.clock = clock;
  const uint8_t* p = bytes.data();
  const uint8_t* const end = p + bytes.size();
  Addr last_ip = 0;
  take_pip(p, end, g.clock);
  g.guest = g.clock.guest();
  bool done = false;
  while (!done) {
    const Packet k = read_packet(p, end);
    if (is_timing(k.type)) {
      g.clock.update(k);
      p += k.size;
      continue;
    }
    switch (k.type) {
      case Pk::kFup:
        g.has_ip = update_ip(k.ipc, k.value, last_ip);
        g.ip = last_ip;
        break;
      case Pk::kModeExec:
        g.mode = exec_mode(k.value);
        break;
      case Pk::kModeTsx:
        g.transaction = (k.value & 1) != 0;
        break;
      case Pk::kPip:
        g.cr3 = k.value;
        g.non_root = k.value2 != 0;
        g.has_cr3 = true;
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
  if (errata.bdm70 && g.has_ip && pge_ahead(p, end, g.clock.guest_text())) g.has_ip = false;
  return g;
}

std::optional<SyncGroup> read_start(std::span<const uint8_t> bytes, const Clock& clock) {
  constexpr uint8_t kSixBytes = 3, kEightBytes = 6;  // IPBytes of an address that needs no other
  bool has_mode = false;
  SyncGroup g;
  g.clock = clock;
  const uint8_t* p = bytes.data();
  const uint8_t* const end = p + bytes.size();
  if (p == end || read_packet(p, end).type != Pk::kTsc) return std::nullopt;
  g.clock.update(read_packet(p, end));  // the time of these bytes; code may come much later
  for (;;) {
    const Packet k = read_packet(p, end);
    switch (k.type) {
      case Pk::kPge:
        if (k.ipc != kSixBytes && k.ipc != kEightBytes) return std::nullopt;
        // MODE.Exec is not sent again where the mode is as before; of the kernel it is known.
        if (!has_mode && (k.value >> 47 & 1) == 0) return std::nullopt;
        return g;
      case Pk::kModeExec:
        has_mode = true;
        break;
      case Pk::kPad:
      case Pk::kModeTsx:
        break;
      default:
        if (!is_timing(k.type)) return std::nullopt;
    }
    p += k.size;
  }
}

namespace {

// The PSBs of a stretch one after the other, also those that begin in one piece and end in the next.
class SyncPoints {
 public:
  SyncPoints(const Stream& stream, const Stretch& s)
      : stream_(stream), s_(s), piece_(s.first_piece), at_(s.begin - stream.pieces[s.first_piece].offset) {}

  std::optional<uint64_t> next() {
    for (; piece_ <= s_.last_piece; ++piece_, at_ = 0) {
      const StreamPiece& p = stream_.pieces[piece_];
      if (at_ != SIZE_MAX) {
        const size_t hit = find_psb(p.bytes, at_);
        at_ = hit == SIZE_MAX ? SIZE_MAX : hit + kPsbSize;
        if (hit != SIZE_MAX) return last_ = p.offset + hit;
        if (const auto seam = at_seam(p.offset + p.bytes.size())) {
          last_ = seam;
          return seam;
        }
      }
    }
    return std::nullopt;
  }

 private:
  std::optional<uint64_t> at_seam(uint64_t seam) {
    if (piece_ == s_.last_piece) return std::nullopt;
    const uint64_t from = seam - std::min<uint64_t>(kPsbSize - 1, seam - s_.begin);
    const uint64_t to = std::min<uint64_t>(seam + kPsbSize - 1, s_.end);
    const size_t hit = find_psb(stream_.bytes(from, to, scratch_), 0);
    if (hit == SIZE_MAX || (last_ && *last_ + kPsbSize > from + hit)) return std::nullopt;
    return from + hit;
  }

  const Stream& stream_;
  const Stretch s_;
  size_t piece_;
  size_t at_;  // in the piece; SIZE_MAX: it is looked through, and its seam
  std::optional<uint64_t> last_;
  std::vector<uint8_t> scratch_;
};

class PsbSplitter final : public Splitter {
 public:
  PsbSplitter(const Stream& stream, size_t stream_index, const Config& config, const Errata& errata,
              uint64_t start)
      : Splitter(stream, stream_index, "PSB"), config_(config), errata_(errata) {
    take_stretches(start);
  }

 private:
  void open(const Stretch& s) override {
    points_.emplace(stream_, s);
    host_time_ = kTimeMin;
    const auto start = start_at(s);
    point_ = start ? s.begin : points_->next();
    if (start)
      group_ = *start;
    else if (point_)
      group_ = group_at(*point_, s);
  }
  // After the kernel stopped because the AUX buffer was full, it switches tracing on again, and the hardware writes a
  // PSB only when it is due. The AUX record says where that trace begins.
  std::optional<SyncGroup> start_at(const Stretch& s) {
    const bool restarts = std::ranges::any_of(
        stream_.losses, [&](const StreamLoss& l) { return l.code == Code::kAuxFull && l.offset == s.begin; });
    if (!restarts) return std::nullopt;
    const auto head = stream_.bytes(s.begin, std::min(s.end, s.begin + kMaxGroup), scratch_);
    return read_start(head, Clock(config_, reference_at(stream_, s.begin)));
  }
  std::optional<uint64_t> point() const override { return point_; }
  SyncGroup group_at(uint64_t at, const Stretch& s) {
    const auto head = stream_.bytes(at, std::min(s.end, at + kMaxGroup), scratch_);
    return read_sync_group(head, Clock(config_, reference_at(stream_, at)), errata_);
  }
  // Hardware writes trace in order. Where the next sync point is older than this one, the buffer was full and
  // newer trace precedes older: the one ends somewhere in the middle of this segment.
  static bool runs_back(Time from, const SyncGroup& group) {
    const Time to = group.guest ? kTimeMin : group.clock.now();
    return from != kTimeMin && to != kTimeMin && to < saturating_add(from, -kClocksDiffer);
  }
  static constexpr uint64_t kMaxGroup = 512;  // a PSB+ is below 100 bytes; PADs may stretch it
  Segment segment(const Stretch& s) override;
  bool tells_nothing(const Stretch& s, uint64_t begin, uint64_t end) override;

  const Config& config_;
  const Errata& errata_;
  std::optional<SyncPoints> points_;  // of this stretch
  std::optional<uint64_t> point_;     // the next segment's
  SyncGroup group_;                   // there
  Time host_time_ = kTimeMin;         // of the last group in this stretch that has one
  std::vector<uint8_t> scratch_;
};

// The first bytes of a trace can be MTC, CYC or CBR packets: the unit runs before it makes its first PSB. And
// zeros are PAD packets, such as perf fills a buffer up with to a multiple of eight. At any other place the
// bytes could be the rest of a packet, and are not taken for timing.
bool PsbSplitter::tells_nothing(const Stretch&, uint64_t begin, uint64_t end) {
  constexpr uint64_t kMost = 64;
  if (end - begin > kMost) return false;
  const auto bytes = stream_.bytes(begin, end, scratch_);
  const uint8_t* p = bytes.data();
  const uint8_t* const last = p + bytes.size();
  while (p != last) {
    const Packet k = read_packet(p, last);
    if (k.type != Pk::kPad && !(is_timing(k.type) && begin == 0)) return false;
    p += k.size;
  }
  return true;
}

Segment PsbSplitter::segment(const Stretch& s) {
  const auto following = points_->next();
  Segment g = empty_segment();
  g.begin = *point_;
  g.end = following.value_or(s.end);
  g.tail_end = std::min(s.end, g.end + (following ? kMaxGroup : 0));
  const SyncGroup group = group_;
  // In a guest the group has no time of the host.
  g.start_time = group.guest && group.clock.now() == kTimeMin ? host_time_ : group.clock.now();
  const bool back = runs_back(host_time_, group);
  host_time_ = g.start_time;
  take_gap(g);
  if (back && !g.before) {
    Gap& gap = g.before.emplace();
    gap.begin = gap.end = g.begin;
    gap.time = {g.start_time, g.start_time};
    gap.code = Code::kTraceOverwritten;
    gap.reason = "time runs backwards here: trace was overwritten before it was read";
  }
  if (following) {
    group_ = group_at(*following, s);
    g.overwritten = runs_back(host_time_, group_);
  }
  point_ = following;
  return g;
}

}  // namespace

uint64_t reference_at(const Stream& stream, uint64_t offset) {
  const auto& pieces = stream.pieces;
  if (pieces.empty()) return 0;
  const auto after = std::ranges::upper_bound(pieces, offset, {}, &StreamPiece::offset);
  return (after == pieces.begin() ? after : std::prev(after))->reference;
}

Time first_time(const Stream& stream, uint64_t from, uint64_t to, const Config& config) {
  for (const StreamPiece& piece : stream.pieces) {
    const uint64_t begin = std::max(from, piece.offset),
                   end = std::min(to, piece.offset + piece.bytes.size());
    if (begin >= end) continue;
    const auto bytes = piece.bytes.subspan(begin - piece.offset, end - begin);
    for (size_t at = find_psb(bytes, 0); at != SIZE_MAX; at = find_psb(bytes, at + kPsbSize)) {
      const Clock clock(config, reference_at(stream, begin + at));
      const SyncGroup g = read_sync_group(bytes.subspan(at), clock, {});
      if (!g.guest && g.clock.now() != kTimeMin) return g.clock.now();
    }
  }
  return kTimeMin;
}

std::unique_ptr<SegmentSource> split_stream(const Stream& stream, size_t stream_index, const Config& config,
                                            const Errata& errata, uint64_t from) {
  const auto make = [&](uint64_t start) {
    return std::make_unique<PsbSplitter>(stream, stream_index, config, errata, start);
  };
  if (from <= stream.begin()) return make(0);
  return std::make_unique<SegmentsFrom>(stream, from, config.time.has_value(), make);
}

}  // namespace asof::x86
