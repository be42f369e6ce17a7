// A return without an address in the trace, whose call was made in the last gap or in front of it. Calls in
// front of the gap may have been returned from in it, the newest first, and any number may have been made
// there: what is followed here is the likeliest of those in front of it, and never certain.
#include <algorithm>
#include <vector>

#include "arch/arm64/flow.h"

namespace asof::arm64 {

namespace {

struct CallBeforeGap {
  State left;  // with this call and the newer ones taken off
  Addr back = 0;
  uint8_t mode = 0;
  Addr distance = 0;
};

}  // namespace

// From the function called before `back` to where the flow is; far where the call does not show it.
Addr Flow::call_distance(State& s, Addr back, uint8_t mode) {
  constexpr Addr kFar = UINT64_MAX, kFunction = Addr{1} << 16;
  if (mode != kA64 || back < 4) return kFar;
  const Addr call = back - 4;
  const Cell cell = text_.cell(is_kernel_address(call) ? kKernelSpace : s.user_space, call);
  const TimeBounds when = text_bounds(s);
  Addr nearest = kFar;
  for (const Version& v : cell.possible_in(when)) {
    if (v.bytes == nullptr || cell.range.end - call < 4) continue;
    Insn insn;
    decode_insn({v.bytes + (call - cell.range.begin), 4}, call, mode, false, insn);
    const bool direct = insn.waypoint == Waypoint::kDirect && insn.link && insn.target <= s.ip;
    if (direct && s.ip - insn.target < kFunction) nearest = std::min(nearest, s.ip - insn.target);
  }
  return nearest;
}

// The call of the function that the flow is in, by its address, else the newest; of those from which the
// trace can be followed.
bool Flow::guess_target(State& s) {
  constexpr uint64_t kPieces = 64;  // of trace: mostly an address is among them, which decides
  start_trials();
  std::vector<CallBeforeGap> calls;
  CallBeforeGap c{.left = s, .mode = s.mode};
  while (c.left.rets.pop(c.back, c.mode)) {
    c.distance = call_distance(s, c.back, c.mode);
    if (is_kernel_address(c.back) == is_kernel_address(s.ip)) calls.push_back(c);
    c.mode = s.mode;
  }
  std::ranges::stable_sort(calls, {}, &CallBeforeGap::distance);
  for (const CallBeforeGap& call : calls) {
    State after = call.left;
    after.unsure = true;
    go_indirect(after, call.back, call.mode);
    State copy = after;
    Trial t;
    t.until = s.decisions + kPieces;
    if (walk<false>(copy, &t) == Stop::kContradiction) continue;
    s = after;
    return true;
  }
  return false;
}

}  // namespace asof::arm64
