// What verbs share for opening and ending.
#include <fmt/format.h>

#include "decoder/calls/timeline.h"
#include "decoder/perf/record_types.h"
#include "decoder/pipeline/unjudged.h"
#include "tools/cli/matches.h"
#include "tools/cli/named_paths.h"
#include "tools/cli/verbs.h"
#include "tools/output/coverage.h"
#include "tools/output/format.h"
#include "tools/output/output.h"

namespace asof {

namespace {

// What was wrong with the trace that there is comes first; files of code do not matter where there is none.
void refuse_without_trace(const Capture& capture, Diagnostics& diagnostics) {
  for (const Notice& n : capture.notices) {
    if (n.severity == Notice::Severity::kError && family_of(n.code) != CodeFamily::kText)
      diagnostics.notice(n);
  }
  const auto has = [&](uint32_t type) { return capture.record_counts.contains(type); };
  std::string reason = "there is no trace in this recording",
              hint = "record with -e intel_pt// or -e cs_etm//; 'asof events' lists the records there are";
  if (has(perf::kAuxtrace)) {
    reason = "none of the trace in this recording can be used";
    hint = "'asof doctor' says what is wrong with it";
  } else if (has(perf::kAux)) {
    reason = "AUX records announce trace, and none is in the file";
    hint = "copy the file again, whole; 'asof doctor' says what else is missing";
  }
  diagnostics.error({Code::kNoTrace, capture.path, Error::kNoOffset, std::move(reason), std::move(hint)});
}

bool is_shown(const Notice& notice, ShownNotices shown) {
  const CodeFamily family = family_of(notice.code);
  switch (shown) {
    case ShownNotices::kNone:
      return false;
    case ShownNotices::kDamage:
      return family != CodeFamily::kText && family != CodeFamily::kLost;
    case ShownNotices::kRecording:
      return family != CodeFamily::kText;
    case ShownNotices::kAll:
      return true;
  }
  return true;
}

}  // namespace

ShownNotices shown_or_all(ShownNotices shown, const InputOptions& options) {
  return options.verbose > 0 ? ShownNotices::kAll : shown;
}

std::optional<Capture> open_for_verb(const InputOptions& options, Diagnostics& diagnostics,
                                     ShownNotices notices, const DecodeChoice* choice) {
  if (!check_named_paths(options.capture, diagnostics)) return std::nullopt;
  auto capture = open_capture(options.input, options.capture);
  if (!capture) {
    diagnostics.error(capture.error());
    return std::nullopt;
  }
  capture->code.debuginfod = options.debuginfod;
  if (!options.no_demangle) capture->symbols.show(NameStyle::kWithParameters);
  if (choice != nullptr && without_trace(*capture)) {
    refuse_without_trace(*capture, diagnostics);
    return std::nullopt;
  }
  if (choice != nullptr) warn_of_cpus(*capture, choice->pipeline.cpus, diagnostics);
  for (const Notice& n : capture->notices) {
    if (is_shown(n, notices)) diagnostics.notice(n);
  }
  return std::move(*capture);
}

bool is_recording(const Capture& capture, Diagnostics& diagnostics) {
  if (!capture.core) return true;
  diagnostics.error({Code::kBadOption, capture.path, Error::kNoOffset,
                     "a plan has no side-band records and no files",
                     "name the capture that it was made of (plan.json)"});
  return false;
}

TimeBounds whole_time(const Capture& capture) {
  TimeBounds whole{kTimeMax, kTimeMin};
  for (const Stream& s : capture.streams) {
    if (s.bounds.lo != kTimeMin) whole.lo = std::min(whole.lo, s.bounds.lo);
    if (s.bounds.hi != kTimeMax) whole.hi = std::max(whole.hi, s.bounds.hi);
  }
  return whole.lo > whole.hi ? TimeBounds{} : whole;
}

bool take_time(const std::string& text, const Capture& capture, Diagnostics& diagnostics, TimeBounds& time) {
  if (text.empty()) return true;
  const auto range = parse_time_range(text, whole_time(capture));
  if (range) {
    time = *range;
    warn_of_time(capture, time, text, diagnostics);
  } else {
    diagnostics.error(range.error());
  }
  return range.has_value();
}

bool finish_choice(DecodeChoice& choice, Diagnostics& diagnostics) {
  if (is_unjudged(choice.pipeline.decode))
    diagnostics.note("the text is not that of each instant (--text-at, --engine): nothing is certain");
  if (choice.cpus.empty()) return true;
  auto cpus = parse_number_list(choice.cpus, "--cpu");
  if (!cpus) {
    diagnostics.error(cpus.error());
    return false;
  }
  choice.pipeline.cpus = std::move(*cpus);
  return true;
}

bool flush_output(Output& out, Diagnostics& diagnostics) {
  if (out.finish()) return true;
  if (const auto failure = Output::take_failure()) diagnostics.error(*failure);
  return false;
}

void tell_stopped(Coverage& coverage, const DecodeChoice& choice) {
  if (interrupted()) {
    coverage.stopped("interrupted");
  } else if (coverage.errors() > choice.max_errors) {
    coverage.stopped("stopped by --max-errors");
  }
}

ExitCode exit_code_for(const Coverage& coverage, const DecodeChoice& choice) {
  if (interrupted()) return kExitInterrupted;
  if (coverage.instructions() == 0 && coverage.text_missing()) return kExitNoText;
  if (coverage.instructions() == 0 && coverage.errors() != 0) return kExitInput;
  if (coverage.errors() > choice.max_errors) return kExitErrors;
  return choice.strict && coverage.errors() != 0 ? kExitErrors : kExitOk;
}

void tell_nothing_decoded() {
  Diagnostics(Diagnostics::Color::kAuto, 0)
      .note("nothing of the trace could be decoded; 'asof report' says why, with the codes of the errors");
}

void tell_causes(const Coverage& coverage, Diagnostics& diagnostics) {
  for (const Notice& n : notices_of(coverage.causes())) diagnostics.notice(n);
  if (const std::string starts = coverage.ring_start_text(); !starts.empty()) diagnostics.note(starts);
}

ExitCode exit_code_for(const TimelineSummary& summary) {
  if (interrupted()) return kExitInterrupted;
  if (summary.instructions != 0 || summary.gaps == 0) return kExitOk;
  tell_nothing_decoded();
  return summary.text_missing ? kExitNoText : kExitInput;
}

}  // namespace asof
