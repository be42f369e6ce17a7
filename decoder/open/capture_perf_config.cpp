#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>

#include "decoder/open/capture_perf.h"
#include "decoder/perf/record_types.h"

namespace asof {
namespace {

// Indices of AUXTRACE_INFO.priv for Intel PT, tools/perf/util/intel-pt.h.
enum PtInfo : size_t {
  kPmuType,
  kTimeShift,
  kTimeMult,
  kTimeZero,
  kCapTimeZero,
  kTscBit,
  kNoRetComp,
  kSchedSwitch,
  kSnapshot,
  kPerCpu,
  kMtcBit,
  kMtcFreqBits,
  kTscCtcN,
  kTscCtcD,
  kCycBit,
  kMaxNonturbo,
};

// "GenuineIntel,6,142,10"
x86::CpuModel parse_cpuid(std::string_view text) {
  x86::CpuModel out;
  const size_t comma = text.find(',');
  if (comma == std::string_view::npos) return out;
  unsigned numbers[3] = {};
  std::string_view rest = text.substr(comma);
  for (unsigned& number : numbers) {
    if (rest.empty() || rest[0] != ',') return out;
    auto [stop, status] = std::from_chars(rest.data() + 1, rest.data() + rest.size(), number);
    if (status != std::errc()) return out;
    rest.remove_prefix(static_cast<size_t>(stop - rest.data()));
  }
  if (numbers[0] > UINT16_MAX || numbers[1] > UINT8_MAX || numbers[2] > UINT8_MAX) return out;
  out.intel = text.starts_with("GenuineIntel");
  out.family = static_cast<uint16_t>(numbers[0]);
  out.model = static_cast<uint8_t>(numbers[1]);
  out.stepping = static_cast<uint8_t>(numbers[2]);
  return out;
}

std::optional<TimeConversion> conversion(uint64_t shift, uint64_t mult, uint64_t zero) {
  if (mult == 0 || mult > UINT32_MAX || shift > 63) return std::nullopt;
  TimeConversion out;
  out.shift = static_cast<uint16_t>(shift);
  out.mult = static_cast<uint32_t>(mult);
  out.zero = zero;
  return out;
}

}  // namespace

std::optional<TimeConversion> info_conversion(const PerfData& data) {
  const auto& info = data.auxtrace_info();
  if (!info || info->type != perf::kAuxtraceIntelPt || info->priv.size() <= kCapTimeZero) return std::nullopt;
  if (info->priv[kCapTimeZero] == 0) return std::nullopt;
  return conversion(info->priv[kTimeShift], info->priv[kTimeMult], info->priv[kTimeZero]);
}

x86::Config perf_config(const PerfData& data) {
  x86::Config out;
  out.cpu = parse_cpuid(data.feature_string(9));
  const auto& info = data.auxtrace_info();
  if (!info || info->type != perf::kAuxtraceIntelPt) return out;
  auto priv = [&](size_t i) { return i < info->priv.size() ? info->priv[i] : 0; };
  const auto attrs = data.attrs();
  auto event =
      std::find_if(attrs.begin(), attrs.end(), [&](const PerfAttr& a) { return a.type == priv(kPmuType); });
  const uint64_t config = event == attrs.end() ? 0 : event->config;
  if ((config & priv(kMtcBit)) != 0 && priv(kMtcFreqBits) != 0) {
    out.mtc_freq =
        static_cast<uint8_t>(((config & priv(kMtcFreqBits)) >> std::countr_zero(priv(kMtcFreqBits))) & 0xfU);
  }
  if (priv(kTscCtcN) <= UINT32_MAX && priv(kTscCtcD) <= UINT32_MAX && priv(kTscCtcD) != 0) {
    out.tsc_ctc_n = static_cast<uint32_t>(priv(kTscCtcN));
    out.tsc_ctc_d = static_cast<uint32_t>(priv(kTscCtcD));
  }
  // Bits of the event as the kernel's driver has them (arch/x86/events/intel/pt.c): without `pt`, `branch` is
  // always on.
  constexpr uint64_t kPt = 1, kBranch = 1ULL << 13, kEvent = 1ULL << 31, kNoTnt = 1ULL << 55;
  out.no_tnt = (config & kNoTnt) != 0;
  out.no_ret_compression =
      priv(kNoRetComp) != 0 && event != attrs.end() && std::ranges::all_of(attrs, [&](const PerfAttr& a) {
        return a.type != priv(kPmuType) || (a.config & priv(kNoRetComp)) != 0;
      });
  out.no_branches = (config & (kPt | kBranch)) == kPt;
  out.event_trace = (config & kEvent) != 0;
  if (!info->filter.empty()) out.filter.emplace_back();  // its addresses are those of files
  out.has_cyc = (config & priv(kCycBit)) != 0;
  if (priv(kMaxNonturbo) <= UINT8_MAX) out.max_nonturbo = static_cast<uint8_t>(priv(kMaxNonturbo));
  out.time = info_conversion(data);
  const auto& record = data.time_conv();
  if (record && record->cap_zero) {
    if (auto time = conversion(record->shift, record->mult, record->zero)) {
      time->cycles = record->cycles;
      time->mask = record->mask;
      time->cap_short = record->cap_short;
      out.time = time;
    }
  }
  return out;
}

}  // namespace asof
