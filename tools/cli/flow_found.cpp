#include "tools/cli/flow_found.h"

#include "tools/cli/verbs.h"
#include "tools/output/error_table.h"
#include "tools/output/output.h"

namespace asof {

ExitCode exit_code_for(const FlowFound& found) {
  if (interrupted()) return kExitInterrupted;
  if (found.instructions) return kExitOk;
  if (found.text_missing || found.errors) tell_nothing_decoded();
  return found.text_missing ? kExitNoText : found.errors ? kExitInput : kExitOk;
}

void FlowWatch::deliver(Chunk& chunk, const Stream& stream, Prepared* prepared) {
  found_.instructions = found_.instructions || !chunk.steps.empty();
  for (const Gap& g : chunk.gaps) {
    found_.errors = found_.errors || is_error_code(g.code);
    found_.text_missing = found_.text_missing || family_of(g.code) == CodeFamily::kText;
  }
  consumer_.deliver(chunk, stream, prepared);
}

}  // namespace asof
