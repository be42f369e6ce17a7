// Configuration of the traced machine, and where its code came from, as sections of a core.
#pragma once
#include "decoder/core/core_format.h"
#include "decoder/model/capture.h"

namespace asof::core {

void put_machine(Writer& out, const Capture& capture);
void take_machine(Source& in, Capture& capture);
void put_code(Writer& out, const Capture& capture);
void take_code(Source& in, Capture& capture);

}  // namespace asof::core
