// reencode BOARD DIRECTORY [PSB_BYTES]: writes DIRECTORY/data, a capture whose trace has no time except that
// of its sync points, from the truth of a board capture; `asof` and `perf` open DIRECTORY.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <exception>
#include <string_view>

#include "tests/support/reencode.h"

int main(int argc, char** argv) {
  asof::test::ReencodeOptions options;
  bool usage = argc != 3 && argc != 4;
  if (argc == 4) {
    const std::string_view number = argv[3];
    const auto parsed = std::from_chars(number.begin(), number.end(), options.psb_bytes);
    usage = parsed.ec != std::errc{} || parsed.ptr != number.end();
  }
  if (usage) {
    std::fputs("usage: reencode BOARD DIRECTORY [PSB_BYTES]\n", stderr);
    return 1;
  }
  try {
    const auto cpus = asof::test::reencode(argv[1], options);
    asof::test::write_reencoded(argv[1], cpus, argv[2]);
    for (const auto& [cpu, c] : cpus) {
      fmt::print("cpu{}: {} instructions in {} runs, {} bytes of trace, {} sync points\n", cpu,
                 c.instructions, c.runs, c.trace.size(), c.syncs);
    }
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 2;
  }
  return 0;
}
