// What text says of functions as wholes. A block stream has the text of blocks that ran, so it says this beside
// (docs/formats.md).
#pragma once
#include <unordered_map>
#include <vector>

#include "decoder/model/symbols.h"
#include "textstore/time.h"

namespace asof {

struct Capture;

struct FunctionText {
  std::vector<Time> changes;  // of its bytes while it has its name, sorted
  bool landing_pad = false;   // begins with one, where it may be called without
};
using FunctionTexts = std::unordered_map<const Symbol*, FunctionText>;

inline constexpr uint64_t kLandingPad = 4;  // bytes

FunctionText function_text(const Capture& capture, const Symbol& symbol);

}  // namespace asof
