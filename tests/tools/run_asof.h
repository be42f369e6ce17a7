// Runs the asof binary as a user does: arguments in, exit status and both outputs back.
#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/temp_dir.h"

namespace asof::test {

struct Ran {
  int status = -1;  // exit status; 128 + n when signal n ended it
  std::string out, err;
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream bytes;  // much faster than by iterators where the tests are not optimised
  bytes << in.rdbuf();
  return std::move(bytes).str();
}

// TSan's program for symbols tells of files that are none ("[stack]"), also for reports that are suppressed.
inline std::string without_symbolizer(std::string err) {
  for (size_t at = 0; (at = err.find("llvm-symbolizer", at)) != std::string::npos;) {
    at = err.rfind('\n', at) + 1;
    err.erase(at, std::min(err.find('\n', at), err.size() - 1) + 1 - at);
  }
  return err;
}

// `arguments` go through the shell, after ASOF_BINARY and before `tail` ("| head -1").
inline Ran run_asof(const std::string& arguments, const std::string& tail = "") {
  const TempDir dir;
  const std::string out = dir.path() / "out";
  const std::string err = dir.path() / "err";
  // Nothing is kept in the folders of whoever runs the tests.
  const std::string command = "( ASOF_CACHE=${ASOF_CACHE-never} " ASOF_BINARY " " + arguments + " 2>" + err +
                              " </dev/null; echo $? >" + out + ".status ) " + tail + " >" + out;
  Ran ran;
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  ran.status = std::atoi(read_file(out + ".status").c_str());
  ran.out = read_file(out);
  ran.err = without_symbolizer(read_file(err));
  return ran;
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

inline const std::string kDemo = ASOF_TEST_DATA "/demo/perf.data --symfs " ASOF_TEST_DATA "/demo/symfs";

// A path among the captures beside the project.
inline std::string shared(const std::string& path) { return ASOF_SHARED_DIR "/" + path; }

}  // namespace asof::test
