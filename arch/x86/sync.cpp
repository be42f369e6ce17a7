// Sync points: PSB and the status packets up to PSBEND. Segments start there; the address in the next one's
// PSB+ is where a segment's flow must arrive.
#include <algorithm>

#include "arch/scan_ahead.h"
#include "arch/segments_from.h"
#include "arch/splitter.h"
#include "arch/x86/flow.h"
#include "arch/x86/segments.h"
#include "arch/x86/sync_scan.h"
#include "arch/x86/time_order.h"

namespace asof::x86 {

SyncGroup read_sync_group(std::span<const uint8_t> bytes, const Clock& clock, const Errata& errata) {
  SyncGroup g;
  g.clock = clock;
  g.guest = clock.guest();
  const uint8_t* p = bytes.data();
  const uint8_t* const end = p + bytes.size();
  Addr last_ip = 0;
  bool done = false;
  while (!done) {
    const Packet k = read_packet(p, end);
    if (is_timing(k.type)) {
      g.clock.update(k);
      if (k.type == Pk::kCbr) g.cbr = static_cast<uint8_t>(k.value);
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
        g.interrupts = interrupt_flag(k.value);
        break;
      case Pk::kModeTsx:
        g.transaction = (k.value & 1) != 0;
        break;
      case Pk::kPip: {
        Clock of_machine = clock;
        of_machine.update(k);
        // The first one says whose the TSC in front of it is.
        if (!g.has_cr3 && of_machine.guest() != g.guest) return read_sync_group(bytes, of_machine, errata);
        g.cr3 = k.value;
        g.non_root = k.value2 != 0;
        g.has_cr3 = true;
        break;
      }
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

class PsbSplitter final : public Splitter, public ScanAhead {
 public:
  PsbSplitter(const Stream& stream, size_t stream_index, const Config& config, const Errata& errata,
              uint64_t start)
      : Splitter(stream, stream_index, "PSB"), config_(config) {
    take_stretches(start);
    scan_.emplace(stream, stretches(), config, errata);
  }
  bool scan_ahead(size_t most) override { return scan_->scan_ahead(most); }

 private:
  void open(const Stretch& s) override {
    scan_->enter(s);
    host_time_ = kTimeMin;
    if (const auto start = start_at(s))
      point_ = {s.begin, *start};
    else
      point_ = scan_->next();
  }
  // After the kernel stopped because the AUX buffer was full, it switches tracing on again, and the hardware writes a
  // PSB only when it is due. The AUX record says where that trace begins.
  std::optional<SyncGroup> start_at(const Stretch& s) {
    const bool restarts = std::ranges::any_of(
        stream_.losses, [&](const StreamLoss& l) { return l.code == Code::kAuxFull && l.offset == s.begin; });
    if (!restarts) return std::nullopt;
    const auto head = stream_.bytes(s.begin, std::min(s.end, s.begin + kMaxStart), scratch_);
    return read_start(head, Clock(config_, reference_at(stream_, s.begin)));
  }
  std::optional<uint64_t> point() const override { return point_ ? std::optional(point_->at) : std::nullopt; }
  // Hardware writes trace in order. Where the next sync point is older than this one, the buffer was full and
  // newer trace precedes older: the one ends somewhere in the middle of this segment.
  static bool runs_back(Time from, const SyncGroup& group) {
    const Time to = group.guest ? kTimeMin : group.clock.now();
    return from != kTimeMin && to != kTimeMin && to < saturating_add(from, -kClocksDiffer);
  }
  static constexpr uint64_t kMaxStart = 512;  // bytes of it
  Segment segment(const Stretch& s) override;
  bool tells_nothing(const Stretch& s, uint64_t begin, uint64_t end) override;

  const Config& config_;
  std::optional<SyncScan> scan_;
  std::optional<SyncPoint> point_;  // the next segment's
  Time host_time_ = kTimeMin;       // of the last group in this stretch that has one
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
  const auto following = scan_->next();
  Segment g = empty_segment();
  g.begin = point_->at;
  g.end = following ? following->at : s.end;
  g.tail_end = following ? sync_group_end(g.end, s.end) : s.end;
  const SyncGroup& group = point_->group;
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
  g.overwritten = following && runs_back(host_time_, following->group);
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
