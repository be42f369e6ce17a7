#include "arch/time_conversion.h"

namespace asof {

Time TimeConversion::to_perf(uint64_t counter) const {
  if (cap_short) counter = cycles + ((counter - cycles) & mask);
  const auto ns = static_cast<uint64_t>((static_cast<unsigned __int128>(counter) * mult) >> shift);
  return static_cast<Time>(zero + ns);
}

}  // namespace asof
