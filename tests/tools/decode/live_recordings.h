// Recordings as pipes, decoded while they are written and after the fact.
#pragma once
#include <filesystem>
#include <fstream>
#include <random>

#include "tests/support/live_pipe.h"
#include "tests/tools/decode/live_program.h"

namespace asof::test {

struct LiveRecording {
  std::string name, path;
  std::vector<std::string> options;  // for a pipe, which has no folder beside it
  CaptureOptions capture;
  double early = 0;  // at least so much of the output can be there before the end
};

inline const std::vector<std::string> kEverything{"-F", "+conf,disasm,textver,textsrc,flags",
                                                  "--itrace=ibcrexwpI", "--ns"};
inline const std::vector<std::string> kCalls{"-F", "comm,tid,time,ip,sym,conf", "--itrace=cre", "--ns"};

inline LiveRecording demo(const std::string& name, double early) {
  const std::string path = ASOF_TEST_DATA "/" + name + "/perf.data", symfs = ASOF_TEST_DATA "/demo/symfs";
  LiveRecording r{name, path, {"--kcore", path + "/kcore_dir/kcore", "--symfs", symfs}, {}};
  r.options.insert(r.options.end(), kEverything.begin(), kEverything.end());
  r.capture.symfs = symfs;
  r.early = early;
  return r;
}

// Unpacked once for all tests here.
inline LiveRecording machine(const TempDir& dir, const std::string& name, const std::string& file,
                             double early) {
  const std::string folder = dir.path() / name;
  std::filesystem::create_directory(folder);
  EXPECT_EQ(std::system(("tar xf " ASOF_TEST_DATA "/" + name + "/" + file + " -C " + folder).c_str()), 0);
  LiveRecording r{name, folder + "/perf.data", kCalls, {}, early};
  if (std::filesystem::exists(r.path + "/kcore_dir"))
    r.options.insert(r.options.end(), {"--kcore", r.path + "/kcore_dir/kcore"});
  if (std::filesystem::exists(folder + "/symfs"))
    r.options.insert(r.options.end(), {"--symfs", r.capture.symfs = folder + "/symfs"});
  return r;
}

inline std::vector<std::string> arguments(const LiveRecording& r) {
  std::vector<std::string> out{"decode", "-"};
  out.insert(out.end(), r.options.begin(), r.options.end());
  return out;
}

// Of the pipe as a file: after the fact.
inline Ran after_the_fact(std::span<const uint8_t> pipe, const LiveRecording& r) {
  const TempDir dir;
  const std::string path = dir.path() / "pipe";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(pipe.data()), static_cast<std::streamsize>(pipe.size()));
  std::string command;
  for (const std::string& a : arguments(r)) command += " '" + a + "'";
  const std::string out = dir.path() / "out";
  const int status =
      std::system((ASOF_BINARY + command + " <" + path + " >" + out + " 2>" + out + ".err").c_str());
  return {WEXITSTATUS(status), read_file(out), read_file(out + ".err")};
}

// Written in pieces, with pauses in which asof looks at what is there.
inline Ran piece_by_piece(std::span<const uint8_t> pipe, const LiveRecording& r, std::mt19937& random) {
  LiveProgram live(arguments(r));
  while (!pipe.empty()) {
    const size_t size = std::min<size_t>(1 + random() % 4000, pipe.size());
    live.write(pipe.first(size));
    pipe = pipe.subspan(size);
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 20));
  }
  return live.end();
}

}  // namespace asof::test
