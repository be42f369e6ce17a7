// How many random captures a test makes. ASOF_TEST_CAPTURES=n: n times as many as usual, and a test continues
// after one that fails. ASOF_TEST_CAPTURES=1/n: one of n, for builds that are slow (sanitizers).
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace asof::test {

struct CaptureScale {
  uint64_t times = 1, one_of = 1;
};

inline CaptureScale capture_scale() {
  const char* text = std::getenv("ASOF_TEST_CAPTURES");
  if (text == nullptr) return {};
  const bool fraction = std::string_view(text).starts_with("1/");
  const uint64_t n = std::max<uint64_t>(std::strtoull(fraction ? text + 2 : text, nullptr, 10), 1);
  return fraction ? CaptureScale{.one_of = n} : CaptureScale{.times = n};
}

// `usual`: a number of captures without ASOF_TEST_CAPTURES, or what must be found in that many.
inline uint64_t captures_of(uint64_t usual) {
  const CaptureScale s = capture_scale();
  return std::max<uint64_t>(usual * s.times / s.one_of, 1);
}

inline bool first_failure_ends() { return capture_scale().times == 1; }

}  // namespace asof::test
