// Checks of the trace itself: whether there is any, some of it is lost, its timing is fine enough, and the
// tasks that ran are known.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "decoder/perf/record_types.h"
#include "tools/doctor/health.h"
#include "tools/output/coverage.h"
#include "tools/output/diagnostics.h"
#include "tools/output/format.h"

namespace asof {
namespace {

constexpr uint64_t kUseClockid = 1ULL << 25U;  // perf_event_attr flags
// AUXTRACE_INFO.priv of intel_pt (tools/perf/util/intel-pt.h) and bits of its config.
enum : size_t { kPmuType = 0, kCapTimeZero = 4, kTscBit = 5, kSchedSwitch = 7, kMtcBit = 10 };
constexpr unsigned kPsbShift = 24;
constexpr uint64_t kPsbMask = 0xf;
// Coarser timing than this leaves so many versions possible that the trace must decide between them.
constexpr uint64_t kCoarseNs = 100'000;

struct PtFacts {
  const AuxtraceInfo* info = nullptr;  // nullptr: not Intel PT in a perf.data
  uint64_t config = 0;
  uint64_t priv(size_t i) const { return i < info->priv.size() ? info->priv[i] : 0; }
};

PtFacts pt_facts(const Capture& c) {
  PtFacts f;
  if (!c.perf || !c.perf->auxtrace_info() || c.perf->auxtrace_info()->type != perf::kAuxtraceIntelPt)
    return f;
  f.info = &*c.perf->auxtrace_info();
  for (const PerfAttr& a : c.perf->attrs()) {
    if (a.type == f.priv(kPmuType)) f.config = a.config;
  }
  return f;
}

// From one MTC packet to the next, in ns; 0: not known.
uint64_t mtc_period_ns(const x86::Config& x) {
  if (!x.time || x.tsc_ctc_n == 0 || x.tsc_ctc_d == 0) return 0;
  const double ticks = static_cast<double>(uint64_t{1} << x.mtc_freq) * x.tsc_ctc_n / x.tsc_ctc_d;
  const double ns = ticks * x.time->mult / static_cast<double>(uint64_t{1} << x.time->shift);
  return ns < 1e12 ? static_cast<uint64_t>(ns) : 0;
}

bool announces_trace(const Capture& c) { return c.record_counts.contains(perf::kAux); }

}  // namespace

void check_trace(const HealthInput& in, std::vector<Finding>& out) {
  const Capture& c = in.capture;
  uint64_t bytes = 0;
  std::vector<std::string> empty;
  for (const Stream& s : c.streams) {
    bytes += s.end() - s.begin();
    if (s.pieces.empty()) empty.push_back(s.name);
  }
  const std::string evidence =
      fmt::format("{}, {}", format_plural(c.streams.size(), "stream", "streams"), format_size(bytes));
  if (bytes == 0 && announces_trace(c)) {
    out.push_back({Verdict::kBad, "trace", "AUX records announce trace, and none is in the file", evidence,
                   "copy the file again, whole"});
  } else if (bytes == 0) {
    out.push_back(
        {Verdict::kBad, "trace", "there is no trace", evidence,
         in.arm64 ? "record with perf record -e cs_etm//" : "record with perf record -e intel_pt//"});
  } else if (!empty.empty()) {
    out.push_back({Verdict::kWarn, "trace", "some CPUs or threads have no trace",
                   evidence + "; without: " + first_of(empty), "see whether they were idle or not recorded"});
  } else {
    out.push_back({Verdict::kOk, "trace", "there is trace", evidence, ""});
  }
}

void check_losses(const HealthInput& in, std::vector<Finding>& out) {
  const Capture& c = in.capture;
  uint64_t losses = 0;
  uint64_t bytes = 0;
  std::map<Code, uint64_t> codes;
  for (const Stream& s : c.streams) {
    losses += s.losses.size();
    for (const StreamLoss& l : s.losses) {
      bytes += l.bytes.value_or(0);
      ++codes[l.code];
    }
  }
  std::vector<std::string> by_code;
  by_code.reserve(codes.size());
  for (const auto& [code, n] : codes)
    by_code.push_back(fmt::format("{} {}", code_text(code), format_plural(n, "time", "times")));
  const std::string sizes = fmt::format("{}, {} of known size; {}", format_plural(losses, "loss", "losses"),
                                        format_size(bytes), first_of(by_code));
  const bool none_left = announces_trace(c) && without_trace(c);
  const bool without_buffers =
      std::ranges::any_of(c.notices, [](const Notice& n) { return n.code == Code::kTraceWithoutBuffer; });
  if (early_end(c) != nullptr) {
    out.push_back({Verdict::kWarn, "trace-loss", "what trace was behind the end of the file is not known",
                   losses == 0 ? "" : sizes, "copy the file again; end perf record with SIGINT"});
  } else if (losses == 0 && (none_left || without_buffers)) {
    out.push_back({Verdict::kWarn, "trace-loss", "trace that AUX records announce is not in the file", "",
                   "copy the file again, whole"});
  } else if (losses == 0) {
    out.push_back({Verdict::kOk, "trace-loss", "no trace is known to be lost", "", ""});
  } else {
    out.push_back({Verdict::kWarn, "trace-loss", "trace was lost while recording", sizes,
                   "record with a larger AUX buffer (perf record -m,64M), fewer CPUs, or a filter"});
  }
  if (!c.perf) return;
  uint64_t records = 0;
  bool counted = true;
  size_t places = 0;
  std::set<uint32_t> rings;
  for (const LostRecords& l : in.side.lost) {
    if (!l.known) continue;
    ++places;
    records += l.count;
    counted = counted && l.count != 0;
    rings.insert(l.source);
  }
  if (places == 0) {
    out.push_back({Verdict::kOk, "record-loss", "no side-band record was lost", "", ""});
    return;
  }
  out.push_back(
      {in.kernel_traced ? Verdict::kBad : Verdict::kWarn, "record-loss",
       "side-band records were lost; changes of text may be among them",
       fmt::format("{} in {} of {}; chains of pokes with a break: {}",
                   counted ? format_plural(records, "record", "records") : "an unknown number",
                   format_plural(places, "place", "places"), format_plural(rings.size(), "ring", "rings"),
                   format_count(notice_count(c, Code::kBrokenPokeChain))),
       counted ? "record with bigger rings (perf record -m 4M,64M)" : "see \"file\""});
}

namespace {

Finding timing_of_pt(const Capture& c, const PtFacts& pt) {
  const bool mtc = (pt.config & pt.priv(kMtcBit)) != 0;
  const uint64_t psb = uint64_t{1} << (((pt.config >> kPsbShift) & kPsbMask) + 11);
  const uint64_t period = mtc ? mtc_period_ns(c.x86) : 0;
  const std::string every = fmt::format("TSC {}, MTC {}, CYC {}, sync point every {} of trace",
                                        (pt.config & pt.priv(kTscBit)) != 0 ? "on" : "off",
                                        !mtc          ? "off"
                                        : period == 0 ? "on"
                                                      : "every " + format_duration(period),
                                        c.x86.has_cyc ? "on" : "off", format_size(psb));
  if ((pt.config & pt.priv(kTscBit)) == 0)
    return {Verdict::kBad, "timing", "the trace has no time", every, "record with intel_pt/tsc/"};
  if (c.x86.has_cyc || (mtc && period <= kCoarseNs))  // 0: not known
    return {Verdict::kOk, "timing", "the trace is finely timed", every, ""};
  return {Verdict::kWarn, "timing",
          "the trace is coarsely timed: near changes of text the flow itself must prove which version ran",
          every, "record with intel_pt/mtc,mtc_period=3/ or cyc"};
}

}  // namespace

void check_clock(const HealthInput& in, std::vector<Finding>& out) {
  const Capture& c = in.capture;
  if (!c.perf) return;
  for (const PerfAttr& a : c.perf->attrs()) {
    if ((a.flags & kUseClockid) == 0) continue;
    out.push_back({Verdict::kBad, "clock", "records are timed by another clock than the trace",
                   fmt::format("clockid {} in an event's attributes", a.clockid),
                   "record without perf record -k"});
    return;
  }
  const PtFacts pt = pt_facts(c);
  if (pt.info == nullptr) {
    if (c.arm64.time_error > arm64::kCoarseClock) {
      out.push_back(
          {Verdict::kWarn, "clock", "trace time converts to perf's clock, but not exactly",
           fmt::format("by AUX records, to {}", format_duration(static_cast<uint64_t>(c.arm64.time_error))),
           "give the conversion with --time-conv if it is known"});
      return;
    }
    const bool known = c.x86.time || c.arm64.time;
    out.push_back(
        {known ? Verdict::kOk : Verdict::kWarn, "clock",
         known ? "trace time converts to perf's clock" : "no conversion from trace time to perf's clock", "",
         known ? "" : "give the conversion if it is known; else order comes from the AUX records only"});
    return;
  }
  const auto& record = c.perf->time_conv();
  const std::string caps =
      fmt::format("cap_user_time_zero {}, TIME_CONV record {}", pt.priv(kCapTimeZero) != 0 ? 1 : 0,
                  record ? (record->cap_zero ? "there" : "without time_zero") : "absent");
  if (c.x86.time) {
    out.push_back({Verdict::kOk, "clock", "TSC converts to perf's clock",
                   fmt::format("{}, mult {}, shift {}", caps, c.x86.time->mult, c.x86.time->shift), ""});
  } else {
    out.push_back({Verdict::kBad, "clock",
                   "TSC cannot be converted to perf's clock: trace and records have no common time", caps,
                   "record on a kernel with a stable TSC as clock (virtual machines often have none)"});
  }
  out.push_back(timing_of_pt(c, pt));
}

void check_switches(const HealthInput& in, std::vector<Finding>& out) {
  const Capture& c = in.capture;
  if (!c.perf) return;
  const bool per_cpu =
      std::any_of(c.streams.begin(), c.streams.end(), [](const Stream& s) { return s.cpu >= 0; });
  if (!per_cpu || !in.user_traced) return;
  const auto count = [&](uint32_t type) {
    const auto it = c.record_counts.find(type);
    return it == c.record_counts.end() ? uint64_t{0} : it->second;
  };
  const PtFacts pt = pt_facts(c);
  const uint64_t mode = pt.info == nullptr ? 0 : pt.priv(kSchedSwitch);
  size_t used = 0;
  for (const auto& [cpu, switches] : in.side.switches) used += switches.size();
  std::vector<std::string> without;
  for (const Stream& s : c.streams) {
    if (s.contexts.empty()) without.push_back(s.name);
  }
  const std::string evidence =
      fmt::format("{} SWITCH, {} SWITCH_CPU_WIDE, have_sched_switch {}, {} switches used",
                  format_count(count(perf::kSwitch)), format_count(count(perf::kSwitchCpuWide)), mode,
                  format_count(used));
  if (!without.empty()) {
    out.push_back({Verdict::kWarn, "switches", "of some CPUs nobody says which process ran",
                   evidence + "; without: " + first_of(without),
                   "record context switches (perf record --switch-events); user code there stays unknown"});
    return;
  }
  out.push_back({Verdict::kOk, "switches", "it is known which process ran where", evidence, ""});
}

}  // namespace asof
