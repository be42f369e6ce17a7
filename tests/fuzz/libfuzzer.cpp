// libFuzzer's entry: this program has one target.
#include <cstdlib>

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (asof::fuzz::targets().size() != 1) std::abort();
  asof::fuzz::targets().front().run({data, size});
  return 0;
}
