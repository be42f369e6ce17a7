// The CoreSight part of a perf recording.
#include <fmt/format.h>

#include <algorithm>

#include "decoder/capture_perf.h"
#include "decoder/cs_clock.h"
#include "decoder/cs_perf.h"

namespace asof {
namespace {

std::optional<TimeConversion> recorded_conversion(const PerfData& data) {
  const auto& record = data.time_conv();
  if (!record || !record->cap_zero || record->mult == 0 || record->mult > UINT32_MAX || record->shift > 63)
    return std::nullopt;
  TimeConversion out;
  out.shift = static_cast<uint16_t>(record->shift);
  out.mult = static_cast<uint32_t>(record->mult);
  out.zero = record->zero;
  out.cycles = record->cycles;
  out.mask = record->mask;
  out.cap_short = record->cap_short;
  return out;
}

}  // namespace

// TIME_CONV is about the virtual counter. A trace unit without FEAT_TRF counts something else, and so may one
// that nothing is said of.
void add_cs_streams(Capture& capture, const PerfData& data, NoticeBook& notices) {
  const CsStreams made = make_cs_streams(data, notices);
  capture.streams = made.streams;
  for (const CsUnit& unit : made.units) capture.arm64.sources.push_back(unit.source);
  if (capture.arm64.time || made.streams.empty()) return;
  const bool is_virtual = std::all_of(made.units.begin(), made.units.end(), [](const CsUnit& unit) {
    return unit.clock == CsUnit::Clock::kVirtual;
  });
  if (is_virtual) capture.arm64.time = recorded_conversion(data);
  if (capture.arm64.time) return;
  if (const auto clock = fit_clock(clock_bounds(made))) {
    capture.arm64.time = clock->conversion;
    capture.arm64.time_error = clock->error;
    notices.info(
        "I-SIDE-511", data.path(),
        fmt::format("no record relates the trace's timestamps to perf's clock: the relation was derived "
                    "from the times of AUX records, it is exact to {} ns",
                    clock->error),
        "give the constants with --time-conv SHIFT,MULT,ZERO if they are known");
    return;
  }
  notices.info("I-SIDE-510", data.path(),
               "nothing says how the trace's timestamps relate to perf's clock: they give order only, and "
               "records are placed by the bounds of AUX records",
               "give the constants with --time-conv SHIFT,MULT,ZERO if they are known");
}

}  // namespace asof
