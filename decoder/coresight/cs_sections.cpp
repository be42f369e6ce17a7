#include "decoder/coresight/cs_sections.h"

#include <algorithm>

namespace asof {
namespace {

constexpr uint64_t kFormatMask = 0xff00, kRaw = 0x100;  // PERF_AUX_FLAG_CORESIGHT_FORMAT_RAW
constexpr uint64_t kStopped = 1 | 8;                    // PERF_AUX_FLAG_TRUNCATED, _COLLISION
constexpr uint64_t kMaxPadding = 7;                     // perf pads a payload to 8

class SectionCutter {
 public:
  explicit SectionCutter(const AuxRing& ring)
      : ring_(ring), last_(ring.stream.bounds.lo), before_last_(last_) {
    const auto time = [](const AuxRecord* r) { return r->id.time.value_or(kTimeMin); };
    ordered_ = std::ranges::is_sorted(ring.records, {}, time);
  }

  CsSections cut() {
    for (size_t i = 0; i < ring_.stream.pieces.size(); ++i) {
      const StreamPiece& piece = ring_.stream.pieces[i];
      if (ring_.overlapping) {
        add_snapshot(piece, i < ring_.ring_ends.size() ? ring_.ring_ends[i] : UINT64_MAX);
      } else {
        cut_piece(piece);
      }
    }
    return std::move(out_);
  }

 private:
  void cut_piece(const StreamPiece& piece) {
    const auto& records = ring_.records;
    const uint64_t end = piece.offset + piece.size();
    for (uint64_t at = piece.offset; at < end;) {
      // The last record that begins at or before this offset, and where the next one does.
      while (next_ < records.size() && records[next_]->offset <= at) ++next_;
      const AuxRecord* record = next_ == 0 ? nullptr : records[next_ - 1];
      uint64_t stop = end;
      if (next_ < records.size()) stop = std::min(stop, records[next_]->offset);
      const bool inside = record != nullptr && end_of(record->offset, record->size) > at;
      if (inside) stop = std::min(stop, end_of(record->offset, record->size));
      add(piece, at - piece.offset, stop - at, record, !inside && !records.empty());
      at = stop;
    }
  }

  // A snapshot. A ring that is overwritten has an AUX record for each time that a CPU's trace was stopped, not
  // one for each snapshot, and the drivers count on (`handle->head += size` in coresight-trbe.c, -tmc-etr.c and
  // -tmc-etf.c), so that the offset of a record is where its bytes end. So what ends at `end` was made before
  // the first record that ends there or later; it may begin long before the record before that one. Where
  // offsets do not go up with time there is no such rule. After a record that says that the trace was stopped by a full
  // buffer something is missing (make_streams() says the same of rings that are not overwritten).
  void add_snapshot(const StreamPiece& piece, uint64_t end) {
    size_t from = 0;
    for (const AuxRecord* r : ring_.records) {
      if (!ordered_ || end == UINT64_MAX || (r->flags & kStopped) == 0) continue;
      if (r->offset >= end || end - r->offset >= piece.size() - from) continue;
      const size_t at = piece.size() - static_cast<size_t>(end - r->offset);
      add_part(piece, from, at, r->offset);
      from = at;
    }
    add_part(piece, from, piece.size(), end);
  }

  // The bytes [from, to) of a snapshot, the last of which is before `end` in the ring. Those of another part do not go on
  // where the part before it stopped.
  void add_part(const StreamPiece& piece, size_t from, size_t to, uint64_t end) {
    const auto& records = ring_.records;
    auto record = std::ranges::upper_bound(records, end, {}, &AuxRecord::offset);
    if (record != records.begin() && (*std::prev(record))->offset >= end - std::min(end, kMaxPadding))
      --record;
    const bool known = ordered_ && end != UINT64_MAX && record != records.end();
    add(piece, from, to - from, known ? *record : records.empty() ? nullptr : records.back(), false);
    if (!known && !out_.sections.empty()) out_.sections.back().time = {};
    if (from != 0) out_.sections.back().discontinuity = true;
  }

  // Bytes whose record was lost are assumed to have the format of those before them.
  void add(const StreamPiece& piece, uint64_t from, uint64_t size, const AuxRecord* record, bool unrecorded) {
    if (size == 0 || (unrecorded && size <= kMaxPadding)) return;
    if (unrecorded) {
      if (out_.unrecorded == 0) out_.unrecorded_at = piece.file_offset + from;
      out_.unrecorded += size;
      if (record == nullptr) record = ring_.records.front();
    }
    CsSection s;
    s.bytes = piece.bytes.subspan(from, size);
    s.offset = piece.offset + from;
    s.file_offset = piece.file_offset + from;
    s.discontinuity = unrecorded || (from == 0 && piece.discontinuity);
    if (record != nullptr) {
      s.raw = (record->flags & kFormatMask) == kRaw;
      s.cpu = record->id.cpu;
      if (!unrecorded) set_time(s, *record);
    }
    out_.sections.push_back(s);
  }

  void set_time(CsSection& s, const AuxRecord& record) {
    const auto recorded = record.id.instant();
    if (!recorded) return;
    const Time time = *recorded;
    if (&record != last_record_) {
      before_last_ = last_;
      last_ = latest_;
      latest_ = time;
      last_record_ = &record;
    }
    s.time.hi = time;
    if (!ring_.overlapping) s.time.lo = std::min(s.raw ? before_last_ : last_, time);
  }

  const AuxRing& ring_;
  bool ordered_ = false;  // the records' offsets go up with time
  size_t next_ = 0;
  // The times of this record, the one before it and the one before that; before any record, that of the start
  // of the trace.
  const AuxRecord* last_record_ = nullptr;
  Time latest_ = ring_.stream.bounds.lo, last_, before_last_;
  CsSections out_;
};

}  // namespace

CsSections cut_sections(const AuxRing& ring) { return SectionCutter(ring).cut(); }

size_t section_after(std::span<const CsSection> sections, uint64_t offset) {
  const auto hit = std::lower_bound(sections.begin(), sections.end(), offset,
                                    [](const CsSection& s, uint64_t v) { return s.offset < v; });
  return static_cast<size_t>(hit - sections.begin());
}

}  // namespace asof
