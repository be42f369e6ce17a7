// What a block stream holds of the recording it was made from, so that verbs can read it as they read the
// recording: streams, tasks, symbols, pokes, programs, notices. Not the trace, and of the text only the
// blocks and what changes (changing_text.h).
#pragma once
#include <span>
#include <vector>

#include "decoder/blocks/block_format.h"
#include "decoder/blocks/stable_origins.h"
#include "decoder/model/capture.h"

namespace asof::blocks {

// Bodies of the records kCapture and kSymbols. `origins`: instead of those of its text.
std::vector<uint8_t> put_capture(const Capture& capture);
std::vector<uint8_t> put_capture(const Capture& capture, const StableOrigins& origins);
std::vector<uint8_t> put_symbols(const Capture& capture);
// Of kFunctions.
std::vector<uint8_t> put_functions(const Capture& capture);

// Parts of the body of kCapture: what is said once of the recording, each stream, and tasks, programs, notices and
// counts. take_...() leave `in` failed where bytes are damaged.
void put_head(Writer& out, const Capture& capture);
void take_head(Source& in, Capture& capture);
void put_stream(Writer& out, const Stream& stream);
Stream take_stream(Source& in);
void put_tables(Writer& out, const Capture& capture);
void take_tables(Source& in, Capture& capture);
void put_origin(Writer& out, const Origin& origin);
Origin take_origin(Source& in);

// False: not a body as put_...() makes them. The capture's text is set; to its symbols they are only added.
bool take_capture(std::span<const uint8_t> body, Capture& out);
bool take_symbols(std::span<const uint8_t> body, SymbolTable& out);
// Once its symbols are complete.
bool take_functions(std::span<const uint8_t> body, Capture& out);

}  // namespace asof::blocks
