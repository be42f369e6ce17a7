// make_demo DIRECTORY: writes the demo capture (tests/data/demo is a copy of the output).
// make_demo --arm64 DIRECTORY: writes that of arm64 (tests/data/demo-arm64).
// make_demo --hostile DIRECTORY: writes one whose names are meant to harm their reader (hostile_capture.h).
#include <cstdio>
#include <string_view>

#include "tests/support/demo_capture.h"
#include "tests/support/etm_demo.h"
#include "tests/support/hostile_capture.h"

int main(int argc, char** argv) {
  const std::string_view option = argc == 3 ? argv[1] : "";
  if (argc != 2 && option != "--arm64" && option != "--hostile") {
    std::fprintf(stderr, "usage: make_demo [--arm64 | --hostile] DIRECTORY\n");
    return 2;
  }
  if (option == "--arm64")
    asof::test::write_etm_demo(asof::test::make_etm_demo(), argv[2]);
  else if (option == "--hostile")
    asof::test::write_hostile(argv[2]);
  else
    asof::test::write_demo(argv[1]);
  return 0;
}
