// Time from one instant to another, whatever a damaged capture says that they are.
#pragma once
#include "textstore/time.h"

namespace asof {

// end - begin, as far as Time can say it.
constexpr Time elapsed(Time begin, Time end) {
  Time t = 0;
  if (__builtin_sub_overflow(end, begin, &t)) return end > begin ? kTimeMax : kTimeMin;
  return t;
}

}  // namespace asof
