// Filters: what they match, and a word where that is nothing, or where something is left out.
#pragma once
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/model/capture.h"
#include "tools/output/diagnostics.h"

namespace asof {

// The same, or a pattern of the shell (*, ?, [...]) that matches.
bool matches_name(std::string_view pattern, std::string_view name);
// A function has this name, raw or as its source has it, or matches it as a pattern of the shell (*, ?, [...]).
bool matches_symbol(const std::string& pattern, const Symbol& symbol);

// Warns of numbers of `wanted` that are not `there`.
void warn_of_ids(const char* option, const std::vector<int>& wanted, const std::set<int>& there,
                 Diagnostics& diagnostics);
// Each warns of values that nothing in the capture has, and names what is there.
void warn_of_cpus(const Capture& capture, const std::vector<int>& cpus, Diagnostics& diagnostics);
void warn_of_tasks(const Capture& capture, const std::vector<int>& pids, const std::vector<int>& tids,
                   Diagnostics& diagnostics);
void warn_of_time(const Capture& capture, TimeBounds time, const std::string& text, Diagnostics& diagnostics);
void warn_of_symbols(const Capture& capture, const std::vector<std::string>& patterns,
                     Diagnostics& diagnostics);
void warn_of_dsos(const Capture& capture, const std::vector<std::string>& dsos, Diagnostics& diagnostics);
// Says how many samples the recording has that are left out by whoever makes lines or samples of the trace.
void note_recorded_samples(const Capture& capture, Diagnostics& diagnostics);
// Hint for one name that does not exist among the functions.
std::string near_symbols(const Capture& capture, std::string_view name);

}  // namespace asof
