// Sanitizers make tests ten to forty times slower. What a test does there only on more or larger input of a kind that it
// has already, it leaves out.
#pragma once
#include "textstore/sanitized.h"

namespace asof::test {

#if defined(ASOF_ADDRESS_SANITIZER) || defined(ASOF_THREAD_SANITIZER)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace asof::test
