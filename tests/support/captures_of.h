// ASOF_TEST_CAPTURES=n: tests of random captures make n times as many, and continue after one that fails.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace asof::test {

inline uint64_t times_as_many() {
  const char* times = std::getenv("ASOF_TEST_CAPTURES");
  return times == nullptr ? 1 : std::max<uint64_t>(std::strtoull(times, nullptr, 10), 1);
}

// How many captures a test makes; `usual` is the number without ASOF_TEST_CAPTURES.
inline uint64_t captures_of(uint64_t usual) { return usual * times_as_many(); }

}  // namespace asof::test
