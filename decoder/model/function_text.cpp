#include "decoder/model/function_text.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "decoder/model/capture.h"

namespace asof {
namespace {

constexpr uint64_t kMaxRange = uint64_t{1} << 20;  // searched for changes of text

// Calls that skip the landing pad before a function count as calls of it: ENDBR64, what the kernel makes of
// an unneeded one (arch/x86/include/asm/ibt.h), BTI, PACIASP and PACIBSP, which are BTI too.
bool is_landing_pad(const std::array<uint8_t, kLandingPad>& b) {
  uint32_t word = 0;
  std::memcpy(&word, b.data(), sizeof word);
  constexpr uint32_t kEndbr = 0xfa1e0ff3, kSealed = 0x001f0f66;
  constexpr uint32_t kBti = 0xd503241f, kBtiTargets = 0xc0, kPaciasp = 0xd503233f, kPacibsp = 0xd503237f;
  return word == kEndbr || word == kSealed || word == kPaciasp || word == kPacibsp ||
         (word & ~kBtiTargets) == kBti;
}

}  // namespace

FunctionText function_text(const Capture& capture, const Symbol& symbol) {
  if (capture.functions) {
    const auto told = capture.functions->find(&symbol);
    return told == capture.functions->end() ? FunctionText() : told->second;
  }
  FunctionText out;
  std::array<uint8_t, kLandingPad> first{};
  const bool read = std::ranges::any_of(std::array{symbol.from, symbol.until}, [&](Time t) {
    return capture.text->read(symbol.space, symbol.range.begin, t, first) == first.size();
  });
  out.landing_pad = read && is_landing_pad(first);
  if (symbol.range.empty() || symbol.range.size() > kMaxRange) return out;
  for (const Cell& cell : capture.text->cells(symbol.space, symbol.range)) {
    for (const Version& v : cell.versions) {
      if (v.from > symbol.from && v.from <= symbol.until) out.changes.push_back(v.from);
    }
  }
  std::ranges::sort(out.changes);
  out.changes.erase(std::ranges::unique(out.changes).begin(), out.changes.end());
  return out;
}

}  // namespace asof
