// make_demo DIRECTORY: writes the demo capture (tests/data/demo is a copy of what it writes).
#include <cstdio>

#include "tests/support/demo_capture.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_demo DIRECTORY\n");
    return 2;
  }
  asof::test::write_demo(argv[1]);
  return 0;
}
