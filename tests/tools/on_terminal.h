// asof with a terminal as its standard output.
#pragma once
#include <fmt/format.h>

#include "tests/tools/run_asof.h"

#define ASOF_SKIP_WITHOUT_TERMINAL() \
  if (std::system("command -v script stty >/dev/null") != 0) GTEST_SKIP() << "script(1) is not installed"

namespace asof::test {

// What a terminal of 60 columns gets, from script(1).
inline std::vector<std::string> on_terminal(const std::string& arguments) {
  const TempDir dir;
  const std::string out = dir.path() / "out";
  const std::string command =
      fmt::format("script -qec 'stty cols 60; {} {}' /dev/null </dev/null >{}", ASOF_BINARY, arguments, out);
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  std::string text = read_file(out);
  std::erase(text, '\r');
  return lines_of(text);
}

}  // namespace asof::test
