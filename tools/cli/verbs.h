// The verbs of asof. Each function adds one subcommand and returns what runs it; main() calls the one that
// was named.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <optional>

#include "decoder/model/capture.h"
#include "tools/cli/options.h"
#include "tools/output/diagnostics.h"
#include "tools/output/exit_code.h"

namespace asof {

using RunVerb = std::function<ExitCode()>;

RunVerb add_decode(CLI::App& app);
RunVerb add_script(CLI::App& app);
RunVerb add_report(CLI::App& app);
RunVerb add_text(CLI::App& app);
RunVerb add_doctor(CLI::App& app);
RunVerb add_events(CLI::App& app);
RunVerb add_packets(CLI::App& app);
RunVerb add_digest(CLI::App& app);
RunVerb add_validate(CLI::App& app);
RunVerb add_tables(CLI::App& app);
RunVerb add_plan(CLI::App& app);
RunVerb add_merge(CLI::App& app);
RunVerb add_record(CLI::App& app);
RunVerb add_pack(CLI::App& app);
RunVerb add_unpack(CLI::App& app);
RunVerb add_errors(CLI::App& app);
RunVerb add_completion(CLI::App& app);
RunVerb add_version(CLI::App& app);
RunVerb add_timeline(CLI::App& app);
RunVerb add_query(CLI::App& app);
RunVerb add_stacks(CLI::App& app);
RunVerb add_branches(CLI::App& app);
RunVerb add_coverage(CLI::App& app);
RunVerb add_inject(CLI::App& app);
RunVerb add_diff(CLI::App& app);

// What of a capture's notices is printed.
enum class ShownNotices : uint8_t {
  kNone,       // the verb has them in its output
  kDamage,     // of files: neither what is said of code nor what was lost while recording
  kRecording,  // not what is said of code, which does not matter to the verb
  kAll
};
// Those, or with -v all.
ShownNotices shown_or_all(ShownNotices shown, const InputOptions& options);

// Opens the input; prints its error, or its notices, and what was asked for but is not there.
// `choice`: the verb decodes; without trace it cannot. Empty: the verb ends with kExitInput.
std::optional<Capture> open_for_verb(const InputOptions& options, Diagnostics& diagnostics,
                                     ShownNotices notices = ShownNotices::kAll,
                                     const DecodeChoice* choice = nullptr);

// False for a plan, with an error: side-band records and files are the capture's own, and this verb needs them.
bool is_recording(const Capture& capture, Diagnostics& diagnostics);

// The capture's first and last instant, according to its streams' AUX records.
TimeBounds whole_time(const Capture& capture);

// --time, if it was given. False: what is wrong was printed; the verb ends with kExitUsage.
bool take_time(const std::string& text, const Capture& capture, Diagnostics& diagnostics, TimeBounds& time);

// Turns text options into pipeline options; prints what is wrong. False: the verb ends with kExitUsage.
bool finish_choice(DecodeChoice& choice, Diagnostics& diagnostics);

// Writes what is left in `out`, the file `path`; prints why that failed. False: the verb ends with
// kExitInput.
class Output;
bool flush_output(Output& out, Diagnostics& diagnostics);

// The exit status of a verb that decoded everything there was.
class Coverage;
ExitCode exit_code_for(const Coverage& coverage, const DecodeChoice& choice);
// Notes in `coverage` what ended the decoding early, if anything did.
void tell_stopped(Coverage& coverage, const DecodeChoice& choice);
// For the verbs whose last line does not say it.
void tell_nothing_decoded();
// Each cause of gaps: how often, and where first. For the verbs that do not tell of each gap.
void tell_causes(const Coverage& coverage, Diagnostics& diagnostics);
struct TimelineSummary;
ExitCode exit_code_for(const TimelineSummary& summary);

}  // namespace asof
