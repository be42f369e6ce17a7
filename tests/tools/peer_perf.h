// The perf that lines and files are compared with.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>

namespace asof::test {

// Shares of equal lines were measured with this one.
inline bool has_perf() {
  return std::system("perf --version 2>/dev/null | grep -q '^perf version 6\\.1'") == 0;
}

}  // namespace asof::test

#define ASOF_SKIP_WITHOUT_PERF() \
  if (!::asof::test::has_perf()) GTEST_SKIP() << "perf 6.1 is not installed"
