#include "textstore/check.h"

#include <cstdio>
#include <cstdlib>

namespace asof {

// The one place outside tools/ that writes: the process is about to end and nobody else can say why.
void check_failed(const char* file, int line, const char* what) {
  std::fprintf(stderr, "asof: internal error: %s:%d: %s\n", file, line, what);
  std::abort();
}

}  // namespace asof
