// A straight piece of executed code, as timelines tell it in detail.
#pragma once
#include <cstdint>

#include "arch/block.h"

namespace asof {

// `text` and `lengths` live as long as what holds the piece: FlowOps, or Timeline.
struct FlowPiece {
  Addr ip = 0;
  uint32_t bytes = 0;
  uint16_t count = 0;
  uint8_t mode = 64;
  Confidence confidence = Confidence::kCertain;
  BranchKind branch = BranchKind::kNone;
  bool taken = false;
  Space space = kKernelSpace;
  OriginRef origin = kNoOrigin;
  TimeBounds valid;  // of the bytes
  const uint8_t* text = nullptr;
  const uint8_t* lengths = nullptr;
};

}  // namespace asof
