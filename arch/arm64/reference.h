// OpenCSD's full decoders with the same interface: they decode ETMv3 and PTM (32-bit cores before
// Armv8), and the reference for ETMv4 and ETE.
#pragma once
#include <memory>
#include <span>

#include "arch/arch.h"
#include "arch/arm64/config.h"

namespace asof::arm64 {

std::unique_ptr<SegmentDecoder> make_reference(const Config& config, std::span<const Stream> streams,
                                               const TextStore& text, const DecodeOptions& options);

// ETMv3 and PTM have no decoder but this one.
constexpr bool needs_reference(Protocol p) { return p == Protocol::kEtm3 || p == Protocol::kPtm; }

}  // namespace asof::arm64
