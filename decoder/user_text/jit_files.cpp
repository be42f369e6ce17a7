#include "decoder/user_text/jit_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace asof {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kUseClockid = 1ULL << 25U;  // perf_event_attr flags
constexpr int32_t kClockMonotonic = 1;

}  // namespace

JitClock jit_clock(const Capture& capture, const PerfData& data) {
  JitClock clock;
  clock.counter = capture.x86.time ? capture.x86.time : capture.arm64.time;
  const auto attrs = data.attrs();
  clock.perf_is_monotonic = !attrs.empty() && std::all_of(attrs.begin(), attrs.end(), [](const PerfAttr& a) {
    return (a.flags & kUseClockid) != 0 && a.clockid == kClockMonotonic;
  });
  return clock;
}

JitFiles::JitFiles(const CaptureOptions& options, std::string folder, std::string symfs,
                   const JitClock& clock, NoticeBook& notices)
    : options_(options),
      folder_(std::move(folder)),
      symfs_(std::move(symfs)),
      clock_(clock),
      notices_(notices) {}

const JitDump* JitFiles::open(const std::string& path, bool given) {
  auto [known, fresh] = files_.try_emplace(path);
  if (!fresh) return known->second.get();
  std::vector<std::string> places;
  if (given) places.push_back(path);
  const std::string name = fs::path(path).filename().string();
  if (!given && !symfs_.empty()) places.push_back(symfs_ + "/" + path);
  if (!given && !folder_.empty()) places.push_back(folder_ + "/" + name);
  if (!given && options_.host_files) places.push_back(path);
  std::error_code ignored;
  const auto place = std::find_if(places.begin(), places.end(),
                                  [&](const std::string& p) { return fs::is_regular_file(p, ignored); });
  if (place == places.end()) {
    notices_.error(
        Code::kJitdumpNotFound, path, "no such jitdump file; code of this JIT is unknown",
        "copy it from the recording machine: into the capture's folder, below --symfs, or --jitdump");
    return nullptr;
  }
  auto dump = JitDump::load(*place, notices_);
  if (!dump) {
    notices_.error(dump.error().code, dump.error().where, dump.error().reason, dump.error().hint,
                   dump.error().offset);
    return nullptr;
  }
  known->second = std::move(*dump);
  return known->second.get();
}

bool JitFiles::dated(const JitDump& dump) {
  const auto [known, fresh] =
      dated_.try_emplace(&dump, dump.counter_time() ? clock_.counter.has_value() : clock_.perf_is_monotonic);
  if (fresh && !known->second) {
    notices_.error(Code::kJitdumpOtherClock, dump.path(),
                   dump.counter_time()
                       ? "its times are the CPU's counter, which this recording cannot convert"
                       : "its times are CLOCK_MONOTONIC, which is not the recording's clock",
                   "let the JIT write counter times; until then addresses that were used again are unknown");
  }
  return known->second;
}

Time JitFiles::time(const JitDump& dump, const JitCode& code) const {
  if (dump.counter_time()) return clock_.counter->to_perf(code.timestamp);
  return code.timestamp > static_cast<uint64_t>(kTimeMax) ? kTimeMax : static_cast<Time>(code.timestamp);
}

}  // namespace asof
