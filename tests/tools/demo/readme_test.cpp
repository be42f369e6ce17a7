// README.md shows what `make demo` prints. The block is compared with the output of the script, so it cannot
// go stale.
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

const std::filesystem::path kRoot = std::filesystem::path(ASOF_TEST_DATA) / "../..";

// The fenced block that begins with the demo's first line, without its fences.
std::string quoted_demo(const std::string& readme) {
  const std::string fence = "\n```\n";
  const size_t begin = readme.find(fence + "1. ");
  if (begin == std::string::npos) return "";
  const size_t first = begin + fence.size();
  const size_t end = readme.find(fence, first);
  return end == std::string::npos ? "" : readme.substr(first, end + 1 - first);
}

TEST(Readme, ShowsWhatTheDemoPrints) {
  const TempDir dir;
  const std::string out = dir.path() / "out";
  const std::string command = (kRoot / "scripts/demo.sh").string() + " " ASOF_BINARY " </dev/null >" + out;
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  const std::string quoted = quoted_demo(read_file(kRoot / "README.md"));
  ASSERT_FALSE(quoted.empty()) << "README.md has no block that begins with the demo's first line";
  EXPECT_EQ(quoted, read_file(out)) << "copy the output of scripts/demo.sh into README.md";
}

}  // namespace
}  // namespace asof::test
