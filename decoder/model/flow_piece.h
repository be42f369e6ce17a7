// A straight piece of executed code, as detailed timelines have it.
#pragma once
#include <cstdint>
#include <vector>

#include "arch/block.h"

namespace asof {

struct FlowPiece {
  Addr ip = 0;
  uint8_t mode = 64;
  Confidence confidence = Confidence::kCertain;
  BranchKind branch = BranchKind::kNone;
  bool taken = false;
  Addr to = 0;  // where the branch at its end led, when taken; 0: unknown
  Space space = kKernelSpace;
  OriginRef origin = kNoOrigin;
  TimeBounds valid;  // of the bytes
  std::vector<uint8_t> text;
  std::vector<uint8_t> lengths;  // of the instructions
};

}  // namespace asof
