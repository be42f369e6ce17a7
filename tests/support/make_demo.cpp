// make_demo DIRECTORY: writes the demo capture (tests/data/demo is a copy of the output).
// make_demo --arm64 DIRECTORY: writes that of arm64 (tests/data/demo-arm64).
#include <cstdio>
#include <string_view>

#include "tests/support/demo_capture.h"
#include "tests/support/etm_demo.h"

int main(int argc, char** argv) {
  const bool arm64 = argc == 3 && std::string_view(argv[1]) == "--arm64";
  if (argc != 2 && !arm64) {
    std::fprintf(stderr, "usage: make_demo [--arm64] DIRECTORY\n");
    return 2;
  }
  if (arm64)
    asof::test::write_etm_demo(asof::test::make_etm_demo(), argv[2]);
  else
    asof::test::write_demo(argv[1]);
  return 0;
}
