// Block streams through the program: verbs say of one what they say of its recording.
#include <fmt/format.h>

#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

// Without the lines that name the input or tell of trace that is not in the stream.
std::string without_heading(const std::string& report) {
  const auto lines = lines_of(report);
  std::string text;
  for (size_t i = 1; i < lines.size(); ++i) text += lines[i] + "\n";
  return text;
}

class BlocksCli : public testing::Test {
 protected:
  void SetUp() override {
    const Ran r = run_asof("decode --format blocks -o " + blocks_ + " " + kDemo);
    ASSERT_EQ(r.status, 0) << r.err;
  }
  TempDir dir_;
  std::string blocks_ = dir_.path() / "demo.blocks";
};

TEST_F(BlocksCli, VerbsSayTheSame) {
  for (const std::string verb :
       {"digest", "digest --fnv",
        "decode -F comm,tid,cpu,time,ip,sym,symoff,dso,insn,disasm,flags,conf --itrace=ibcrexwp",
        "decode --format jsonl", "branches", "branches --format perf-script", "stacks",
        "stacks --by cpu --weight ns", "query \"SELECT * FROM call\" -i",
        "decode --format text -j3 --time 20%-40%"}) {
    const Ran want = run_asof(verb + " " + kDemo), got = run_asof(verb + " " + blocks_);
    EXPECT_EQ(want.status, got.status) << verb << got.err;
    // The perf-script writer repeats the recording's mappings, which are not in the stream.
    if (verb.find("perf-script") == std::string::npos) {
      EXPECT_TRUE(want.out == got.out) << verb;
    }
    EXPECT_FALSE(got.out.empty()) << verb;
  }
  const Ran want = run_asof("report " + kDemo), got = run_asof("report " + blocks_);
  EXPECT_EQ(got.status, 0) << got.err;
  EXPECT_EQ(without_heading(want.out), without_heading(got.out));
}

TEST_F(BlocksCli, TheSameBytesForAnyNumberOfThreads) {
  const std::string other = dir_.path() / "other.blocks";
  for (const int jobs : {1, 2, 5}) {
    ASSERT_EQ(run_asof(fmt::format("decode -j{} --format blocks -o {} {}", jobs, other, kDemo)).status, 0);
    EXPECT_TRUE(read_file(blocks_) == read_file(other)) << jobs;
  }
}

TEST_F(BlocksCli, WhatItCannotDoIsRefused) {
  for (const std::string options : {"decode --format blocks -F ip", "decode --format blocks -S do_nop"}) {
    const Ran r = run_asof(options + " -o " + std::string(dir_.path() / "x") + " " + kDemo);
    EXPECT_EQ(r.status, 1) << options;
    EXPECT_NE(r.err.find("E-FILE-091"), std::string::npos) << r.err;
  }
  const Ran r = run_asof("decode -F ip,textver " + blocks_);
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.err.find("textver"), std::string::npos) << r.err;
}

TEST_F(BlocksCli, OfAFileThatIsCutTheRestIsUsed) {
  const std::string cut = dir_.path() / "cut.blocks";
  const std::string whole = read_file(blocks_);
  std::ofstream(cut, std::ios::binary) << whole.substr(0, whole.size() * 2 / 3);
  const Ran r = run_asof("report " + cut);
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.out.find("E-DATA-122"), std::string::npos) << r.out;
}

}  // namespace
}  // namespace asof::test
