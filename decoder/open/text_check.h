// Text that is not what ran: a copy or a file of another build, or a damaged one, in which the flow of a trace leads
// nowhere every few bytes.
#pragma once
#include "decoder/model/capture.h"

namespace asof {

// Follows a few KiB of each stream, and where the trace contradicts text of one origin again and again, nothing of that
// origin is sure any more (doubt.h) and there is a notice (E-FLOW-001). The capture's text must be built, and nobody else
// may have it.
void doubt_contradicted_text(Capture& capture);

}  // namespace asof
