#include "tools/cli/flow_found.h"

#include "tools/cli/verbs.h"
#include "tools/output/chunk_window.h"
#include "tools/output/error_table.h"
#include "tools/output/output.h"
#include "tools/output/ring_start.h"

namespace asof {

void FlowErrors::add(const Gap& gap, const Stream& stream) {
  if (is_ring_start(stream, gap) || !is_within(gap, time_)) return;
  causes_[gap.code].add(capture_, stream, gap);
  if (!is_error_code(gap.code)) return;
  if (++count_ > choice_.max_errors) enough_ = true;
}

void FlowErrors::watch(TimelineOptions& options) {
  options.on_gap = [this](const Gap& gap, const Stream& stream) { add(gap, stream); };
  options.enough = [this] { return enough(); };
}

ExitCode FlowErrors::judge(ExitCode status) const {
  if (status != kExitOk) return status;
  return enough_ || (choice_.strict && count_ != 0) ? kExitErrors : kExitOk;
}

ExitCode FlowErrors::judge(ExitCode status, Diagnostics& diagnostics) const {
  if (enough_) diagnostics.note("stopped by --max-errors: the result is of the trace up to there");
  return judge(status);
}

// What the capture's own notices say of lost trace is not said again.
std::vector<Notice> FlowErrors::notices(const std::string& where) const {
  std::map<Code, GapCause> untold = causes_;
  for (const Notice& n : capture_.notices) {
    if (!is_error_code(n.code)) untold.erase(n.code);
  }
  return notices_of(untold, where);
}

void FlowErrors::tell(Diagnostics& diagnostics, const std::string& where) const {
  for (const Notice& n : notices(where)) diagnostics.notice(n);
}

ExitCode FlowFound::status(Diagnostics& diagnostics, const std::string& where) const {
  errors.tell(diagnostics, where);
  if (interrupted()) return kExitInterrupted;
  if (instructions || (!text_missing && !any_error)) return errors.judge(kExitOk, diagnostics);
  tell_nothing_decoded();
  return text_missing ? kExitNoText : kExitInput;
}

void FlowWatch::deliver(Chunk& chunk, const Stream& stream, Prepared* prepared) {
  found_.instructions = found_.instructions || !chunk.steps.empty();
  for (const Gap& g : chunk.gaps) {
    found_.any_error = found_.any_error || is_error_code(g.code);
    found_.text_missing = found_.text_missing || family_of(g.code) == CodeFamily::kText;
    found_.errors.add(g, stream);
  }
  consumer_.deliver(chunk, stream, prepared);
}

}  // namespace asof
