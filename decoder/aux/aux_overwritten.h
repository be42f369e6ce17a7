// Trace of an Intel PT ring that was written over before perf had read it (seen under Linux 7.3 with small
// buffers, where the ToPA STOP entry can lie in the wrong region: pt_buffer_reset_markers()).
#pragma once
#include "arch/x86/x86.h"
#include "decoder/aux/aux_streams.h"

namespace asof {

// What an AUX record hands over was made before the record. Where the first sync point in it is of a later
// time, newer trace is there, and the flow does not come from what is in front of it: the stream is cut
// there, with a loss (E-LOST-004). Where it ends again, times run backwards, which the decoder sees
// (arch/x86/sync.cpp).
void cut_overwritten(AuxRing& ring, const x86::Config& config);

}  // namespace asof
