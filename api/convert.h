// Between the library's own types and the public ones: the only place that knows both.
#pragma once
#include <string>
#include <string_view>

#include "asof/capture.h"
#include "decoder/model/capture.h"
#include "decoder/pipeline/pipeline.h"

namespace asof::v0 {

Error to_public(const asof::Error& error);
Notice to_public(const asof::Notice& notice);
CaptureInfo info_of(const asof::Capture& capture);
asof::CaptureOptions to_internal(const OpenOptions& options);
asof::PipelineOptions to_internal(const Filter& filter);

// The enumerations have the same values in the same order; convert.cpp asserts it.
inline Confidence to_public(asof::Confidence c) { return static_cast<Confidence>(c); }
inline Branch to_public(asof::BranchKind kind) { return static_cast<Branch>(kind); }
inline EventKind to_public(asof::EventKind kind) { return static_cast<EventKind>(kind); }
inline SourceKind to_public(asof::OriginKind kind) { return static_cast<SourceKind>(kind); }
inline AddressRange to_public(asof::AddrRange r) { return {r.begin, r.end}; }
inline TimeRange to_public(asof::TimeBounds b) { return {b.lo, b.hi}; }

// "E-FLOW-001"
inline std::string text_of(asof::Code code) { return std::string(asof::code_text(code)); }

}  // namespace asof::v0
