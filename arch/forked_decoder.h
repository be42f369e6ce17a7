// Decoders that are not asof's own (libipt, OpenCSD) are known to crash on damaged trace. Each segment is decoded in a process
// of its own: if that dies, or does not answer, the segment is a gap, and nothing else is lost.
#pragma once
#include <memory>

#include "arch/arch.h"

namespace asof {

// `decoder` is only ever run in children. It must need nothing that another thread may hold: no lock, no file.
std::unique_ptr<SegmentDecoder> in_children(std::unique_ptr<SegmentDecoder> decoder, std::string_view name);

// From now on this process runs them itself: it is such a child already, whose death somebody waits for.
void run_foreign_decoders_here();

}  // namespace asof
