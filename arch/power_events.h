// What Event::b of power events holds, for those who read packets as well as for those who read events.
#pragma once
#include <cstdint>

namespace asof {

constexpr uint64_t packed_pwre(uint64_t sub_state, bool hardware) {
  return sub_state | uint64_t{hardware} << 8U;
}
constexpr uint64_t packed_pwrx(uint64_t deepest, uint64_t wake_reason) { return deepest | wake_reason << 8U; }

}  // namespace asof
