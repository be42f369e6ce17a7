// The reference engine: libipt's instruction decoder with the same interface. Slow, and with one clock
// reading per fetch instead of bounds; for comparison (--engine libipt, differential tests), never for
// results.
#pragma once
#include <memory>
#include <span>

#include "arch/arch.h"
#include "arch/x86/config.h"

namespace asof::x86 {

std::unique_ptr<SegmentDecoder> make_reference(const Config& config, std::span<const Stream> streams,
                                               const TextStore& text, const DecodeOptions& options);

}  // namespace asof::x86
