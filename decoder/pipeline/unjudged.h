// Flow without a judgement of its text: of an engine that knows one text only, or of one state of the text.
#pragma once
#include <memory>

#include "arch/arch.h"

namespace asof {

// Nothing that it decodes is better than ambiguous.
std::unique_ptr<SegmentDecoder> unjudged(std::unique_ptr<SegmentDecoder> decoder);

inline bool is_unjudged(const DecodeOptions& options) {
  return options.reference_engine || options.text_at != TextAt::kAsof;
}

}  // namespace asof
