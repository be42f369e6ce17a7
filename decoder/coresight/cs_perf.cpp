// AUX rings to streams: the sections of a ring, each taken apart, and joined again by the unit that made the
// trace.
#include "decoder/coresight/cs_perf.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "decoder/coresight/cs_frame_memory.h"
#include "decoder/coresight/cs_frames.h"
#include "decoder/coresight/cs_sections.h"
#include "decoder/coresight/cs_trace_ids.h"

namespace asof {
namespace {

// A stretch of one unit's trace, and when it was fetched from the sink.
struct TimedPiece {
  StreamPiece piece;
  Time time = kTimeMin;
  size_t ring = 0, section = 0;
  std::vector<StreamLoss> losses;  // right before it; offsets are set when it is placed
};

TimedPiece timed(StreamPiece piece, const CsSection& section, size_t ring, size_t index) {
  piece.time = section.time;
  return {std::move(piece), section.time.hi == kTimeMax ? kTimeMin : section.time.hi, ring, index, {}};
}

// Pieces of several rings by the time of their AUX records; those of one ring keep their order.
void in_order(std::vector<TimedPiece>& pieces) {
  for (size_t i = 1; i < pieces.size(); ++i) {
    if (pieces[i].ring == pieces[i - 1].ring) pieces[i].time = std::max(pieces[i].time, pieces[i - 1].time);
  }
  std::sort(pieces.begin(), pieces.end(), [](const TimedPiece& a, const TimedPiece& b) {
    return std::tie(a.time, a.ring, a.section, a.piece.offset) <
           std::tie(b.time, b.ring, b.section, b.piece.offset);
  });
}

class CsStreamMaker {
 public:
  CsStreamMaker(const PerfData& data, NoticeBook& notices, CsFrameMemory* memory)
      : data_(data), notices_(notices), memory_(memory) {}

  CsStreams make();

 private:
  // Whose trace it is. A ring of a thread may hold trace of several CPUs, and so may one of a CPU where CPUs
  // share a sink.
  struct Key {
    int32_t tid = -1;
    size_t unit = 0;
    auto operator<=>(const Key&) const = default;
  };
  struct Trace {
    std::vector<TimedPiece> pieces;
    std::vector<StreamLoss> at_end;
    TimeBounds bounds{kTimeMax, kTimeMin};
  };
  void take_ring(const AuxRing& ring, size_t index);
  void take_frames(const AuxRing& ring, size_t index, const std::vector<CsSection>& sections);
  void take_raw(const AuxRing& ring, size_t index, const std::vector<CsSection>& sections);
  bool units_alike() const;
  Trace& trace_of(const AuxRing& ring, size_t unit);
  void add_losses(const AuxRing& ring, const std::vector<CsSection>& sections, Trace& trace,
                  size_t first_piece);
  Stream place(const Key& key, Trace& trace, bool only_one) const;

  const PerfData& data_;
  NoticeBook& notices_;
  CsFrameMemory* const memory_;
  std::vector<CsUnit> units_;
  std::optional<CsTraceIds> ids_;
  std::map<Key, Trace> traces_;
};

CsStreamMaker::Trace& CsStreamMaker::trace_of(const AuxRing& ring, size_t unit) {
  Trace& trace = traces_[{ring.stream.tid, unit}];
  trace.bounds.lo = std::min(trace.bounds.lo, ring.stream.bounds.lo);
  trace.bounds.hi = std::max(trace.bounds.hi, ring.stream.bounds.hi);
  return trace;
}

void CsStreamMaker::add_losses(const AuxRing& ring, const std::vector<CsSection>& sections, Trace& trace,
                               size_t first_piece) {
  for (const StreamLoss& loss : ring.stream.losses) {
    const size_t section = section_after(sections, loss.offset);
    const auto piece =
        std::find_if(trace.pieces.begin() + static_cast<ptrdiff_t>(first_piece), trace.pieces.end(),
                     [&](const TimedPiece& p) { return p.section >= section; });
    (piece == trace.pieces.end() ? trace.at_end : piece->losses).push_back(loss);
  }
}

void CsStreamMaker::take_frames(const AuxRing& ring, size_t index, const std::vector<CsSection>& sections) {
  std::vector<FrameSection> formatted;
  std::vector<size_t> section_of;
  for (size_t i = 0; i < sections.size(); ++i) {
    const CsSection& s = sections[i];
    if (s.raw) continue;
    formatted.push_back(
        {.bytes = s.bytes, .file_offset = s.file_offset, .discontinuity = s.discontinuity, .mapped = true});
    section_of.push_back(i);
  }
  if (formatted.empty()) return;
  const auto frames = memory_ != nullptr
                          ? memory_->index(index, std::move(formatted), FrameAlignment::kMemory)
                          : CsFrames::index(std::move(formatted), FrameAlignment::kMemory);
  report_unused_frames(*frames, ring.stream.name, notices_);
  std::set<uint8_t> known;
  for (const CsFrames::Source& source : frames->sources()) {
    const auto unit = ids_->unit_of(ring.stream.cpu, source.id);
    if (!unit) continue;
    known.insert(source.id);
    Trace& trace = trace_of(ring, *unit);
    const size_t first = trace.pieces.size();
    auto pieces = frames->pieces_of(source.id);
    for (size_t i = 0; i < pieces.size(); ++i) {
      const size_t section = section_of[source.breaks[i].section];
      trace.pieces.push_back(timed(std::move(pieces[i]), sections[section], index, section));
    }
    add_losses(ring, sections, trace, first);
  }
  report_unknown_ids(*frames, ring.stream.name, known, notices_);
}

// Do all units write trace that is read in the same way?
bool CsStreamMaker::units_alike() const {
  const auto format = [](const CsUnit& u) {
    const arm64::Source& s = u.source;
    return std::tuple(s.protocol, s.armv7, s.m_profile, s.configr, s.idr0, s.idr1, s.idr2, s.idr8, s.idr9,
                      s.idr10, s.idr11, s.idr12, s.idr13, s.devarch, s.etmcr, s.etmidr, s.etmccer, u.clock);
  };
  return !units_.empty() &&
         std::ranges::all_of(units_, [&](const CsUnit& u) { return format(u) == format(units_.front()); });
}

// Without frames a record's bytes are of the one CPU it was written on. AUX records of a thread by perf 6.1 do not name it:
// then each may be of another CPU than the one before.
void CsStreamMaker::take_raw(const AuxRing& ring, size_t index, const std::vector<CsSection>& sections) {
  std::map<size_t, size_t> first_piece;
  for (size_t i = 0; i < sections.size(); ++i) {
    const CsSection& s = sections[i];
    if (!s.raw) continue;
    const int32_t cpu = ring.stream.cpu >= 0 ? ring.stream.cpu : s.cpu;
    auto unit = ids_->unit_of_cpu(cpu);
    const bool any = !unit && cpu < 0 && units_alike();
    if (any) unit = 0;
    if (!unit) {
      notices_.error(Code::kTraceWithoutOwner, ring.stream.name,
                     fmt::format("{} bytes of trace of CPU {}, which has no known trace unit, are left out",
                                 s.bytes.size(), cpu),
                     {}, s.file_offset, s.time.hi);
      continue;
    }
    Trace& trace = trace_of(ring, *unit);
    first_piece.try_emplace(*unit, trace.pieces.size());
    StreamPiece piece;
    piece.bytes = s.bytes;
    piece.mapped = true;
    piece.discontinuity = s.discontinuity || (any && units_.size() > 1);
    piece.file_offset = s.file_offset;
    // Trace of another CPU in between: nothing shows that this continues where it stopped.
    if (trace.pieces.size() > first_piece[*unit] && trace.pieces.back().section + 1 != i)
      piece.discontinuity = true;
    trace.pieces.push_back(timed(std::move(piece), s, index, i));
  }
  for (const auto& [unit, first] : first_piece) add_losses(ring, sections, trace_of(ring, unit), first);
}

void CsStreamMaker::take_ring(const AuxRing& ring, size_t index) {
  const CsSections cut = cut_sections(ring);
  if (cut.unrecorded != 0) {
    notices_.error(
        Code::kTraceWithoutAuxRecord, ring.stream.name,
        fmt::format("{} bytes of trace are in no AUX record: when they were made, and whether they are "
                    "whole, is unknown",
                    cut.unrecorded),
        "AUX records were lost: record with a larger ring (-m)", cut.unrecorded_at);
  }
  take_frames(ring, index, cut.sections);
  take_raw(ring, index, cut.sections);
}

Stream CsStreamMaker::place(const Key& key, Trace& trace, bool only_one) const {
  const CsUnit& unit = units_[key.unit];
  Stream stream;
  stream.tid = key.tid;
  if (key.tid < 0) stream.cpu = unit.cpu;
  stream.name = key.tid < 0 ? fmt::format("cpu{}", unit.cpu)
                : only_one  ? fmt::format("tid{}", key.tid)
                            : fmt::format("tid{}:cpu{}", key.tid, unit.cpu);
  stream.bounds = trace.bounds;
  in_order(trace.pieces);
  const TimedPiece* before = nullptr;
  for (TimedPiece& timed : trace.pieces) {
    timed.piece.offset = stream.end();
    if (before != nullptr && before->ring != timed.ring) timed.piece.discontinuity = true;
    for (StreamLoss& loss : timed.losses) {
      loss.offset = timed.piece.offset;
      stream.losses.push_back(std::move(loss));
    }
    stream.pieces.push_back(timed.piece);
    before = &timed;
  }
  for (StreamLoss& loss : trace.at_end) {
    loss.offset = stream.end();
    stream.losses.push_back(std::move(loss));
  }
  return stream;
}

CsStreams CsStreamMaker::make() {
  CsStreams out;
  const auto& info = data_.auxtrace_info();
  auto units = read_cs_units(*info, notices_);
  if (!units) {
    const Error& e = units.error();
    notices_.error(e.code, data_.path(), e.reason, e.hint, e.offset);
    return out;
  }
  units_ = std::move(*units);
  ids_.emplace(data_, units_, notices_);
  std::vector<Notice> ring_notices;
  const std::vector<AuxRing> rings = make_rings(data_, ring_notices);
  for (Notice& notice : ring_notices) notices_.add(std::move(notice));
  for (size_t i = 0; i < rings.size(); ++i) take_ring(rings[i], i);
  std::map<int32_t, size_t> of_thread;
  for (const auto& [key, trace] : traces_) ++of_thread[key.tid];
  for (auto& [key, trace] : traces_) {
    out.streams.push_back(place(key, trace, of_thread[key.tid] == 1));
    out.units.push_back(units_[key.unit]);
  }
  return out;
}

}  // namespace

CsStreams make_cs_streams(const PerfData& data, NoticeBook& notices, CsFrameMemory* memory) {
  return CsStreamMaker(data, notices, memory).make();
}

}  // namespace asof
