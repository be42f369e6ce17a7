// What verbs that decode to one output do around the pipeline: progress, coverage, the last line, the exit status.
#pragma once
#include "decoder/pipeline/pipeline.h"
#include "tools/cli/progress.h"
#include "tools/cli/verbs.h"
#include "tools/output/coverage.h"
#include "tools/output/output.h"

namespace asof {

// `Consumer` has coverage().
template <class Consumer>
Result<void> run_with_progress(Consumer& consumer, const Capture& capture, const DecodeChoice& choice,
                               const char* name, ChunkOrder order = ChunkOrder::kByTime) {
  ProgressBar bar(choice.progress, name);
  return run_pipeline(capture, choice.pipeline, order, consumer, bar.callback());
}

// For `quiet` verbs, whose last line, which says it, is not printed.
template <class Consumer>
ExitCode told(ExitCode status, Consumer& consumer, bool quiet) {
  const Coverage& c = consumer.coverage();
  const bool nothing = c.instructions() == 0 && (c.text_missing() || c.errors() != 0);
  if (quiet && nothing && (status == kExitInput || status == kExitNoText)) tell_nothing_decoded();
  return status;
}

// What follows it; `Consumer` also has finish(), which writes what it holds to `out`.
template <class Consumer>
ExitCode finish_decode(const Result<void>& done, Consumer& consumer, const DecodeChoice& choice, Output& out,
                       Diagnostics& diagnostics) {
  consumer.finish();
  if (!done) {
    diagnostics.error(done.error());
    return kExitInput;
  }
  if (!flush_output(out, diagnostics)) return kExitInput;
  tell_stopped(consumer.coverage(), choice);
  if (!out.closed()) diagnostics.note(consumer.coverage().line());
  return exit_code_for(consumer.coverage(), choice);
}

// Both.
template <class Consumer>
ExitCode decode_to(Consumer& consumer, const Capture& capture, const DecodeChoice& choice, const char* name,
                   Output& out, Diagnostics& diagnostics) {
  return finish_decode(run_with_progress(consumer, capture, choice, name), consumer, choice, out,
                       diagnostics);
}

}  // namespace asof
