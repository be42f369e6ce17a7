// Whether the returns of a trace are compressed, where the bundle does not say so.
#pragma once
#include "decoder/model/capture.h"

namespace asof {

// Follows a few KiB of Intel PT as if no return was compressed. If there are many returns, and none without a TIP, the
// trace is taken to have been recorded so (x86::Config::no_ret_compression). Where that is wrong, the first compressed
// return is a gap (E-FLOW-002), as in a bundle that says it wrongly. The capture's text must be built.
void settle_return_compression(Capture& capture);

}  // namespace asof
