// A test with a program that was compiled here and ran under ptrace (tests/support/stepped_program.h).
#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "tests/support/stepped_program.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/run_asof.h"

namespace asof::test {

class SteppedTest : public ::testing::Test {
 protected:
  // False: this machine cannot; the test is skipped.
  void record(const std::string& source, const std::string& flags, bool cycles = false) {
    std::ofstream(path("program.c")) << source;
    const std::string compile = fmt::format(
        "cd {} && gcc -g -nostdlib -static -fno-stack-protector -fno-pie -no-pie -Wl,--build-id {} -o "
        "program "
        "program.c",
        dir_.path().string(), flags);
    if (!runs(compile)) GTEST_SKIP() << "no C compiler that builds the program";
    const auto ran = record_stepped(path("program"), path("perf.data"), 200'000, cycles);
    if (!ran) GTEST_SKIP() << "tracing a child process is not allowed here";
    ran_ = *ran;
    std::istringstream lines(output_of("nm " + path("program")));
    std::string address, type, name;
    while (lines >> address >> type >> name) functions_[name] = std::stoul(address, nullptr, 16);
  }
  std::string path(const std::string& name) const { return dir_.path() / name; }
  static bool runs(const std::string& command) {
    return std::system(("( " + command + " ) >/dev/null 2>&1 </dev/null").c_str()) == 0;
  }
  // What a command prints, on both ways.
  std::string output_of(const std::string& command, int* status = nullptr) const {
    const int ended = std::system(("( " + command + " ) >" + path("output") + " 2>&1 </dev/null").c_str());
    if (status != nullptr) *status = ended;
    return read_file(path("output"));
  }
  uint64_t instructions_in(const std::string& function, uint64_t size) const {
    uint64_t n = 0;
    const Addr begin = functions_.at(function);
    for (const auto& [at, count] : ran_.counts) n += at >= begin && at < begin + size ? count : 0;
    return n;
  }

  TempDir dir_;
  SteppedProgram ran_;
  std::map<std::string, Addr> functions_;
};

}  // namespace asof::test
