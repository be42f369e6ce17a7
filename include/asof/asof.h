// The library in one header: what a program needs to decode a recording by itself. docs/api.md tells the way
// from open_capture() to executed instructions; examples/kernel_changes.cpp is a whole program.
#pragma once
#include "arch/arch.h"
#include "arch/block.h"
#include "decoder/calls/timeline.h"
#include "decoder/lines/source_lines.h"
#include "decoder/model/capture.h"
#include "decoder/model/symbols.h"
#include "decoder/pipeline/pipeline.h"
#include "textstore/text_store.h"
