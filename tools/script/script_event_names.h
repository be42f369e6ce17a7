// Names of the events that perf script prints, and the column they need.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "decoder/model/capture.h"
#include "tools/script/script_options.h"
#include "tools/script/script_record.h"

namespace asof {

// ":u", ":k", ":ku" or nothing: what the trace's event left out.
std::string event_modifiers(const Capture& capture);
// As perf names an event of a recording that does not say its name.
std::string script_event_name(const PerfAttr& event);
// Of all events of a recording, in order; those of tracepoints by its formats.
std::vector<std::string> recorded_event_names(const PerfData& data);
// Their periods (or frequencies), which samples have that say none; 1: the recording does not describe its events.
std::vector<uint64_t> recorded_periods(const PerfData& data);
std::string_view script_event_name(ScriptRecord::Kind kind);
// perf makes the column as wide as the longest name in the recording and among those that are made.
size_t event_name_width(const Capture& capture, const ScriptItrace& itrace,
                        const std::vector<std::string>& recorded);
// perf's words behind "code N:".
std::string_view perf_error_text(uint64_t code);
// The frequency of a CBR packet's ratio, in kHz; 0: not known.
uint64_t cbr_khz(const Capture& capture, uint64_t ratio);
// " psb offs: 0x36 " and the like.
std::string synth_text(const Capture& capture, const ScriptRecord& r);

}  // namespace asof
