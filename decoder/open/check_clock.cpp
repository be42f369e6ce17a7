#include "decoder/open/check_clock.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "arch/x86/mtc_check.h"
#include "arch/x86/segments.h"
#include "decoder/open/capture_perf.h"

namespace asof {
namespace {

// ns, between a TSC packet, the interrupt that follows it and its record's time
constexpr Time kSlack = 10'000;
constexpr size_t kMostRecords = 64;  // of a ring

// What AUX records hand over ran before them, and after those before them.
struct AuxFit {
  size_t checked = 0, wrong = 0;
  Time worst = 0;  // ns; > 0: the trace is too late
  void take(Time bound, Time time) {
    const Time by = std::max(elapsed(bound, time), -kTimeMax);
    ++wrong;
    if (std::abs(by) > std::abs(worst)) worst = by;
  }
  bool contradicts() const { return wrong > checked / 2; }
};

AuxFit check_aux_times(std::span<const AuxRing> rings, x86::Config config, const TimeConversion& time) {
  config.time = time;
  AuxFit fit;
  for (const AuxRing& ring : rings) {
    if (ring.overlapping) continue;
    Time before = kTimeMin;
    size_t looked = 0;
    for (const AuxRecord* record : ring.records) {
      const auto recorded = record->id.instant();
      if (!recorded) continue;
      const Time since = std::exchange(before, *recorded);
      if (record->size == 0) continue;
      if (++looked > kMostRecords) break;
      const Time first =
          x86::first_time(ring.stream, record->offset, end_of(record->offset, record->size), config);
      if (first == kTimeMin) continue;
      ++fit.checked;
      if (first > saturating_add(*recorded, kSlack))
        fit.take(*recorded, first);
      else if (saturating_add(first, kSlack) < since)
        fit.take(since, first);
    }
  }
  return fit;
}

Time apart(Time a, Time b) { return std::max(elapsed(a, b), elapsed(b, a)); }

// A counter value of the trace's time; 0: there is none.
uint64_t reference_of(std::span<const AuxRing> rings) {
  for (const AuxRing& ring : rings) {
    for (const StreamPiece& piece : ring.stream.pieces) {
      if (piece.reference != 0) return piece.reference;
    }
  }
  return 0;
}

}  // namespace

void check_mtcs(Capture& capture, NoticeBook& notices) {
  constexpr uint64_t kMostBytes = 1 << 20, kMostOfAll = 16 << 20;
  constexpr uint32_t kMostChecks = 256;
  x86::MtcFit fit;
  uint64_t bytes = 0;
  for (const Stream& stream : capture.streams) {
    fit.add(x86::check_mtc(stream, capture.x86, kMostBytes, kMostChecks));
    bytes += std::min(trace_bytes({&stream, 1}), kMostBytes);
    if (bytes > kMostOfAll) break;
  }
  if (!fit.contradicts()) return;
  capture.x86.tsc_ctc_d = capture.x86.tsc_ctc_n = 0;
  notices.error(
      Code::kMtcContradicts, capture.path,
      fmt::format("MTC packets do not come as often as the recording says: of {} TSC packets between "
                  "them, {} have another time than MTCs count. MTCs are not used: times are those of "
                  "TSC packets",
                  fit.checked, fit.wrong),
      "the file is damaged, or its configuration is that of another recording");
}

void report_clock(std::string reason, const std::string& path, NoticeBook& notices) {
  notices.error(Code::kClockContradicts, path, std::move(reason),
                "the file is damaged, or its records and its trace are of different machines or boots");
}

bool clock_contradicts(Capture& capture, const PerfData& data, std::span<const AuxRing> rings,
                       NoticeBook& notices) {
  const auto contradiction = [&](const std::string& what) {
    report_clock(what + ". Times of instructions may be wrong, and no text that can change is certain",
                 capture.path, notices);
    return true;
  };
  if (!capture.x86.time) return false;
  const TimeConversion used = *capture.x86.time;
  const AuxFit fit = check_aux_times(rings, capture.x86, used);
  const auto other = info_conversion(data);
  const uint64_t reference = reference_of(rings);
  const bool two =
      other && reference != 0 && apart(other->to_perf(reference), used.to_perf(reference)) > kSlack;
  if (two) {
    if (fit.contradicts() && !check_aux_times(rings, capture.x86, *other).contradicts())
      capture.x86.time = other;
    return contradiction("TIME_CONV and AUXTRACE_INFO convert TSC to different times");
  }
  if (!fit.contradicts()) return false;
  return contradiction(fmt::format(
      "of {} AUX records, {} hand over trace of another time than theirs: the trace's clock is {} ns or "
      "more {} the records'",
      fit.checked, fit.wrong, std::abs(fit.worst), fit.worst > 0 ? "ahead of" : "behind"));
}

}  // namespace asof
