// The captures that the tests of the API read.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "asof/asof.h"

namespace asof_test {

struct Input {
  std::string path, symfs;
  std::string arguments() const { return symfs.empty() ? path : path + " --symfs " + symfs; }
};

inline Input demo() { return {ASOF_TEST_DATA "/demo/perf.data", ASOF_TEST_DATA "/demo/symfs"}; }
inline Input demo_arm64() { return {ASOF_TEST_DATA "/demo-arm64/perf.data", ""}; }

inline asof::Capture open(const Input& input) {
  asof::OpenOptions options;
  options.symfs = input.symfs;
  auto capture = asof::Capture::open(input.path, options);
  if (!capture) throw std::runtime_error(capture.error().code + " " + capture.error().reason);
  return *std::move(capture);
}

// A capture of some megabytes of trace, from outside the repository.
inline std::optional<Input> large() {
  const std::string path = ASOF_SHARED_DIR "/captures/x86-board-small/perf.data";
  if (!std::filesystem::exists(path)) return std::nullopt;
  return Input{path, ""};
}

}  // namespace asof_test
