// Words of timelines.
#include <fmt/format.h>

#include <array>

#include "decoder/calls/timeline.h"

namespace asof {

std::string_view function_kind_name(TimelineFunction::Kind kind) {
  constexpr std::array<std::string_view, 8> kNames = {"kernel",     "module", "user",    "bpf",
                                                      "trampoline", "slot",   "unnamed", "untraced"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view lifetime_kind_name(LifetimeSlice::Kind kind) {
  constexpr std::array<std::string_view, 4> kNames = {"bpf", "module", "out of line", "snapshot"};
  return kNames[static_cast<size_t>(kind)];
}

std::string versioned_name(const TimelineFunction& function, uint32_t version) {
  return function.changes.empty() ? function.name : fmt::format("{} ·v{}", function.name, version);
}

std::string slice_flag_names(uint32_t flags) {
  constexpr std::array<std::string_view, 15> kNames = {
      "async",      "syscall",     "tail",          "emulated",    "began-before",
      "across-gap", "end-unknown", "skipped",       "resumed",     "switched-out",
      "unbalanced", "signal",      "clipped-begin", "clipped-end", "preempted"};
  std::string out;
  for (size_t i = 0; i < kNames.size(); ++i) {
    if ((flags >> i & 1U) == 0) continue;
    if (!out.empty()) out += ' ';
    out += kNames[i];
  }
  return out;
}

}  // namespace asof
