// What a block stream holds of the recording it was made from, so that verbs can read it as they read the
// recording: streams, tasks, symbols, pokes, programs, notices. Not the trace, and of the text only the
// blocks.
#pragma once
#include <vector>

#include "decoder/blocks/block_format.h"
#include "decoder/model/capture.h"

namespace asof::blocks {

// Bodies of the records kCapture and kSymbols.
std::vector<uint8_t> put_capture(const Capture& capture);
std::vector<uint8_t> put_symbols(const Capture& capture);

// False: not a body as put_...() makes them. The capture's text is set; to its symbols they are only added.
bool take_capture(std::span<const uint8_t> body, Capture& out);
bool take_symbols(std::span<const uint8_t> body, SymbolTable& out);

}  // namespace asof::blocks
