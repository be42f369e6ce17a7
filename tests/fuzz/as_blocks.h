// A capture and the block stream of it are the same to whoever reads them: flow, calls, text that changes.
#pragma once
#include <string>

#include "decoder/model/capture.h"

namespace asof::fuzz {

// Writes it at `path`, with a record of its calls, and reads that: whole, and its calls in two parts.
void check_block_stream(const Capture& capture, const std::string& path);

// A timeline that is folded counts what it left out.
void check_folded(const Capture& capture);
// Bounds of cycles are bounds.
void check_cycles(const Capture& capture);

}  // namespace asof::fuzz
