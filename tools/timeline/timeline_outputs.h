// Files that a Timeline is written to. One source file for each format: out_<format>.cpp. Formats:
// docs/timeline.md.
#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "decoder/calls/timeline.h"
#include "textstore/result.h"
#include "tools/output/output.h"

namespace asof {

struct PerfettoResult {
  std::vector<Notice> notices;         // what source lines could not be read
  uint64_t instructions_left_out = 0;  // that have no slices of their own: too many
};

// Perfetto's protobuf: TrackEvents with interned names.
PerfettoResult write_perfetto(const Capture& capture, const Timeline& timeline, bool inlined,
                              const std::function<void(std::string_view)>& write);
// Chrome's JSON, which many viewers read; times in microseconds.
void write_chrome(const Capture& capture, const Timeline& timeline,
                  const std::function<void(std::string_view)>& write);

// "jump_label: nop to jump" and the bytes "0f 1f 44 00 00 -> e9 ..." of a poke.
std::string poke_title(const PokeSlice& poke);
std::string poke_bytes(const Capture& capture, const PokeSlice& poke);

// Times and lengths as text, in what the timeline is measured in.
std::string timeline_time(const TimelineSummary& summary, Time t);
std::string timeline_length(const TimelineSummary& summary, Time length);

}  // namespace asof
