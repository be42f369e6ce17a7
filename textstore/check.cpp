#include "textstore/check.h"

#include <cstdio>
#include <cstdlib>

namespace asof {

// The only code outside tools/ that writes: the process is about to end and nothing else can report why.
void check_failed(const char* file, int line, const char* what) {
  std::fprintf(stderr, "asof: internal error: %s:%d: %s\n", file, line, what);
  std::abort();
}

}  // namespace asof
