// Trace of an Intel PT ring that was overwritten before perf had read it (seen under Linux 7.3 with small
// buffers, where the ToPA STOP entry can lie in the wrong region: pt_buffer_reset_markers()).
#pragma once
#include "arch/x86/x86.h"
#include "decoder/aux/aux_streams.h"

namespace asof {

// The trace that an AUX record hands over was made before the record. If the first sync point in it has a
// later time, newer trace is there, and the flow does not continue what is before it: the stream is cut
// there, with a loss (E-LOST-004). Where the newer trace ends, times run backwards, which the decoder sees
// (arch/x86/sync.cpp).
void cut_overwritten(AuxRing& ring, const x86::Config& config);

}  // namespace asof
