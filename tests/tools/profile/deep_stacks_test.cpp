// Stacks of a made-up trace: a function that calls itself for ever takes one bit a call. Memory is bounded, and what is given
// up is told.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>

#include "tests/support/perf_data_writer.h"
#include "tests/tools/run_asof.h"
#include "textstore/sanitized.h"
#include "tools/profile/folded_stacks.h"

namespace asof::test {
namespace {

// 0x401000: jne +0; call 0x401000.
void write_recursion(const std::filesystem::path& folder, size_t bytes_of_calls) {
  std::vector<uint8_t> trace;
  for (int i = 0; i < 8; ++i) trace.insert(trace.end(), {0x02, 0x82});  // PSB
  trace.insert(trace.end(),
               {0x02, 0x23, 0x99, 0x01, 0xd1, 0x00, 0x10, 0x40, 0, 0, 0, 0, 0});  // PSBEND, MODE, TIP.PGE
  trace.insert(trace.end(), bytes_of_calls, 0x80);                                // TNT: six not taken
  write_bytes(folder / "t.pt", trace);
  write_bytes(folder / "text.bin", std::vector<uint8_t>{0x75, 0, 0xe8, 0xf9, 0xff, 0xff, 0xff, 0x90});
  write_text(folder / "bundle.json",
             R"({"format":"asof-bundle","version":1,"arch":"x86-64","streams":[{"file":"t.pt","cpu":0}],)"
             R"("text":[{"file":"text.bin","address":"0x401000"}]})");
}

TEST(DeepStacks, EndlessRecursionStaysWithinItsMemory) {
  const TempDir dir;
  write_recursion(dir.path(), 1'000'000);
  const std::string out = dir / "out", bundle = dir / "bundle.json";
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("ASAN_OPTIONS", "quarantine_size_mb=1:thread_local_quarantine_size_kb=64", 1);
    ::execl(ASOF_BINARY, ASOF_BINARY, "stacks", "-q", "-j1", "--weight", "calls", "-o", out.c_str(),
            bundle.c_str(), nullptr);
    ::_exit(127);
  }
  int status = -1;
  rusage usage{};
  ASSERT_EQ(::wait4(child, &status, 0, &usage), child);
  ASSERT_EQ(WEXITSTATUS(status), 0);
  // 2 M nodes of some 100 bytes, and the program. Without a bound it is 560 MB.
#if !defined(ASOF_ADDRESS_SANITIZER) && !defined(ASOF_THREAD_SANITIZER)
  EXPECT_LT(usage.ru_maxrss, 350'000);
#endif
  uint64_t calls = 0;
  for (const std::string& line : lines_of(read_file(out))) calls += std::stoull(line.substr(line.rfind(' ')));
  EXPECT_EQ(calls, 6'000'000U);
}

Slice slice_of(uint64_t id, uint64_t parent, uint32_t function) {
  Slice s;
  s.id = id, s.parent = parent, s.function = function;
  s.self_instructions = 1;
  return s;
}

// Every stack another one: of chains of 40 calls, each with its own order of two functions.
std::map<std::string, uint64_t> stacks_of_chains(size_t most_nodes, std::string& note) {
  FoldedStacks stacks({.most_nodes = most_nodes});
  for (uint32_t f = 0; f < 2; ++f) {
    TimelineFunction function;
    function.id = f;
    function.name = f == 0 ? "a" : "b";
    stacks.function(function);
  }
  constexpr uint64_t kDeep = 40;
  uint64_t id = 0;
  for (uint64_t chain = 0; chain < 200; ++chain) {
    for (uint64_t k = kDeep; k > 0; --k)
      stacks.slice(
          slice_of(id + k, k == 1 ? 0 : id + k - 1, static_cast<uint32_t>(chain * 2654435761U >> k & 1)));
    id += kDeep;
  }
  std::map<std::string, uint64_t> out;
  stacks.write(StackWeight::kInstructions, [&](std::string_view line) {
    out[std::string(line.substr(0, line.rfind(' ')))] +=
        std::stoull(std::string(line.substr(line.rfind(' '))));
  });
  note = stacks.shallow_note();
  return out;
}

TEST(DeepStacks, WhatIsCutIsCounted) {
  std::string note;
  const auto all = stacks_of_chains(FoldedStacks::kMostNodes, note);
  EXPECT_EQ(note, "");
  const auto cut = stacks_of_chains(1'000, note);
  EXPECT_NE(note.find("are one, [deeper]"), std::string::npos) << note;
  EXPECT_LT(cut.size(), all.size() / 2);
  std::map<std::string, uint64_t> expected, got;  // by the two outermost frames
  for (const auto& [stack, n] : all) expected[stack.substr(0, 3)] += n;
  for (const auto& [stack, n] : cut) got[stack.substr(0, 3)] += n;
  EXPECT_EQ(got, expected);
}

}  // namespace
}  // namespace asof::test
