// The library in one header: what a program needs to decode a recording by itself. docs/api.md tells the way
// from open_capture() to executed instructions; examples/kernel_changes.cpp is a whole program.
#pragma once
#include "arch/arch.h"
#include "arch/block.h"
#include "decoder/capture.h"
#include "decoder/pipeline.h"
#include "decoder/source_lines.h"
#include "decoder/timeline.h"
#include "textstore/symbols.h"
#include "textstore/text_store.h"
