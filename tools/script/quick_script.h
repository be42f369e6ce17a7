// print_quick(): `asof script` with --itrace's letter q, which neither decodes nor needs text.
#pragma once
#include "tools/output/diagnostics.h"
#include "tools/output/exit_code.h"
#include "tools/output/output.h"
#include "tools/script/script_choice.h"

namespace asof {

ExitCode print_quick(const Capture& capture, const DecodeChoice& choice, const ScriptFormat& format,
                     const ScriptSelection& selection, Output& out, Diagnostics& diagnostics);

}  // namespace asof
