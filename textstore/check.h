// CHECK: invariants of our own code. On in release builds; never used on input.
#pragma once

namespace asof {
[[noreturn]] void check_failed(const char* file, int line, const char* what);
}

#define ASOF_CHECK(cond)                               \
  do {                                                 \
    if (!(cond)) [[unlikely]]                          \
      ::asof::check_failed(__FILE__, __LINE__, #cond); \
  } while (false)
