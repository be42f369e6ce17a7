// Block streams through the program: verbs print the same for one as for its recording.
#include <fmt/format.h>

#include "tests/support/skip_without.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

// Without the lines that name the input or describe trace that is not in the stream.
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

// A block stream has no trace: no reference decoder can have run.
TEST_F(BlocksCli, ValidateNamesNoReference) {
  const Ran r = run_asof("validate " + blocks_);
  EXPECT_EQ(r.out.find("libipt finds"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("a block stream has no trace that a reference could decode"), std::string::npos)
      << r.out;
  // Its recording is compared with one.
  EXPECT_NE(run_asof("validate " + kDemo).out.find("libipt finds"), std::string::npos);
}

TEST_F(BlocksCli, WhatItCannotDoIsRefused) {
  for (const std::string options : {"decode --format blocks -F ip", "decode --format blocks -S do_nop"}) {
    const Ran r = run_asof(options + " -o " + std::string(dir_.path() / "x") + " " + kDemo);
    EXPECT_EQ(r.status, 1) << options;
    EXPECT_NE(r.err.find("E-FILE-091"), std::string::npos) << r.err;
  }
}

// Compares the versions of text of all instructions, line by line; shows the first line that differs. Returns
// how many lines are not of a first version.
size_t expect_same_versions(const std::string& input, const std::string& blocks) {
  const std::string verb = "decode -q -F ip,insn,textver,textsrc ";
  const Ran written = run_asof("decode -q --format blocks -o " + blocks + " " + input);
  EXPECT_LE(written.status, 3) << written.err;
  const auto want = lines_of(run_asof(verb + input).out), got = lines_of(run_asof(verb + blocks).out);
  EXPECT_FALSE(want.empty()) << input;
  EXPECT_EQ(want.size(), got.size()) << input;
  for (size_t i = 0; i < std::min(want.size(), got.size()); ++i) {
    if (want[i] == got[i]) continue;
    ADD_FAILURE() << input << " line " << i << "\n" << want[i] << "\n" << got[i];
    break;
  }
  return static_cast<size_t>(std::count_if(want.begin(), want.end(), [](const std::string& line) {
    return line.find(" v1 ") == std::string::npos;
  }));
}

TEST_F(BlocksCli, VersionsAndOriginsOfTextAreThoseOfTheRecording) {
  EXPECT_GT(expect_same_versions(kDemo, dir_.path() / "versions.blocks"), 0U);
  size_t later = 0;
  for (const std::string capture : {"x86-board-small/perf.data", "arm64-board-tiny/poke.data"}) {
    const std::string input = ASOF_SHARED_DIR "/captures/" + capture;
    SKIP_WITHOUT(input);
    later += expect_same_versions(input, dir_.path() / "versions.blocks");
  }
  EXPECT_GT(later, 0U);
}

TEST_F(BlocksCli, TheRestOfACutFileIsUsed) {
  const std::string cut = dir_.path() / "cut.blocks";
  const std::string whole = read_file(blocks_);
  std::ofstream(cut, std::ios::binary) << whole.substr(0, whole.size() * 2 / 3);
  const Ran r = run_asof("report " + cut);
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.out.find("E-DATA-122"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("of a block stream without an end: decoded"), std::string::npos) << r.out;
}

// Its records are larger than the trace was: they are not looked for in it.
TEST_F(BlocksCli, RecordsMayBeLargerThanTheTraceWas) {
  std::string trace;
  for (int i = 0; i < 6; ++i) {
    for (int k = 0; k < 8; ++k) trace += "\x02\x82";
    trace += "\x02\x23";
  }
  std::ofstream(dir_ / "t.pt", std::ios::binary) << trace;
  std::ofstream(dir_ / "text.bin", std::ios::binary) << std::string(64, '\x90');
  std::ofstream(dir_ / "bundle.json")
      << R"({"format": "asof-bundle", "version": 1, "arch": "x86-64", "streams": [{"file": "t.pt", "cpu": 0}],
             "text": [{"file": "text.bin", "address": "0x401000"}]})";
  const std::string small = dir_.path() / "small.blocks";
  EXPECT_LT(
      run_asof("decode -q --format blocks -o " + small + " " + std::string(dir_ / "bundle.json")).status,
      128);
  for (const std::string verb : {"report", "digest", "validate", "doctor"})
    EXPECT_LT(run_asof(verb + " " + small).status, 128) << verb;
}

// After the description of the recording, and before all flow.
TEST_F(BlocksCli, NoVerbSucceedsOnAFileWithoutFlow) {
  const std::string cut = dir_.path() / "cut.blocks";
  const std::string whole = read_file(blocks_);
  std::ofstream(cut, std::ios::binary) << whole.substr(0, whole.find("albr", whole.find("albr") + 1));
  for (const std::string verb :
       {"digest", "report", "decode", "branches", "stacks", "query \"SELECT 1\" -i"}) {
    const Ran r = run_asof(verb + " " + cut);
    EXPECT_EQ(r.status, 2) << verb << r.err;
    EXPECT_NE(r.err.find("E-FILE-141"), std::string::npos) << verb << r.err;
  }
}

}  // namespace
}  // namespace asof::test
