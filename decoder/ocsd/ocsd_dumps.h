// Memory dumps of an OpenCSD snapshot as text.
#pragma once
#include "decoder/io/sideband_notices.h"
#include "decoder/ocsd/ocsd_devices.h"
#include "textstore/builder.h"

namespace asof {

// Dumps hold for all time and for all cores, as in OpenCSD. Of those that overlap in one memory space the
// first counts; where they are of different spaces (secure, EL2, ...) the trace decides.
void add_ocsd_dumps(const OcsdDevices& devices, Builder& builder, Space user, NoticeBook& notices);

}  // namespace asof
