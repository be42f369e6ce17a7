// FileText: which blocks of a kernel that patched itself are in its vmlinux, and from which instruction on.
#include "tools/profile/file_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "decoder/model/capture.h"
#include "tests/support/elf_writer.h"
#include "tests/support/temp_dir.h"

namespace asof::test {
namespace {

using Bytes = std::vector<uint8_t>;
using K = BranchKind;

constexpr Addr kFile = 0xffffffff81000000, kSlide = 0x2000000;
constexpr uint64_t kReturnThunk = 0x100, kIndirectThunk = 0x140, kOther = 0x180, kSize = 0x200;

// CALL or JMP at `at` of the function to an offset in the file.
Bytes branch(uint8_t opcode, uint64_t at, uint64_t to) {
  const uint64_t distance = to - at - 5;
  Bytes b{opcode};
  for (int i = 0; i < 4; ++i) b.push_back(static_cast<uint8_t>(distance >> 8 * i));
  return b;
}
Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct Case {
  const char* name;
  Bytes file, memory;  // the function
  Bytes lengths;       // of the block's instructions
  K kind;
  std::optional<uint32_t> want;
  uint64_t begin = 0;   // of the block in the function
  uint64_t target = 0;  // of a direct branch, in the file
};

class FileTextTest : public ::testing::Test {
 protected:
  std::optional<uint32_t> begin_of(const Case& c, const std::string& machine, uint16_t elf_machine) {
    Bytes text(kSize, 0x90);
    std::ranges::copy(c.file, text.begin());
    const auto elf = make_executable({.address = kFile,
                                      .text = text,
                                      .symbols = {{"f", kFile, 0x100},
                                                  {"__x86_return_thunk", kFile + kReturnThunk, 16},
                                                  {"__x86_indirect_thunk_rax", kFile + kIndirectThunk, 16},
                                                  {"other", kFile + kOther, 16}},
                                      .machine = elf_machine});
    const std::string path = dir_.path() / "vmlinux";
    std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(elf.data()), std::ssize(elf));
    Capture capture;
    capture.machine = machine;
    capture.code.files.push_back({.path = path, .recorded = "[kernel.kallsyms]", .build_id = {}});
    capture.code.mappings.push_back({.range = {kFile + kSlide, kFile + kSlide + kSize}, .slide = kSlide});
    Block b;
    b.ip = kFile + kSlide + c.begin;
    b.target = c.target != 0 ? kFile + kSlide + c.target : 0;
    b.count = static_cast<uint16_t>(c.lengths.size());
    for (const uint8_t n : c.lengths) b.size += n;
    b.kind = c.kind;
    b.bytes = c.memory.data() + c.begin;
    b.lengths = c.lengths.data();
    EXPECT_EQ(c.memory.size(), c.begin + b.size) << "the case's own lengths";
    return FileText(capture).begin_in_file(b);
  }
  TempDir dir_;
};

constexpr std::optional<uint32_t> kNot;
const Bytes kTest{0x85, 0xc0}, kNop5{0x0f, 0x1f, 0x44, 0x00, 0x00}, kRet{0xc3},
    kCallPv{0xff, 0x15, 1, 2, 3, 4};

TEST_F(FileTextTest, WhatX86KernelsPatch) {
  const Case cases[] = {
      {"as it is", kTest + kRet, kTest + kRet, {2, 1}, K::kRet, 0},
      {"return for the thunk", kTest + branch(0xe9, 2, kReturnThunk), kTest + kRet, {2, 1}, K::kRet, 0},
      {"return for another jump", kTest + branch(0xe9, 2, kOther), kTest + kRet, {2, 1}, K::kRet, kNot},
      {"no call of ftrace", branch(0xe8, 0, kOther) + kRet, kNop5 + kRet, {5, 1}, K::kRet, 0},
      {"a call of ftrace", kNop5 + kRet, branch(0xe8, 0, kOther), {5}, K::kCall, kNot, 0, kOther},
      {"a key that is on", kNop5 + kRet, branch(0xe9, 0, kOther), {5}, K::kJump, kNot, 0, kOther},
      {"a key that is off", branch(0xe9, 0, kOther) + kRet, kNop5 + kRet, {5, 1}, K::kRet, kNot},
      {"another target",
       branch(0xe9, 0, kOther),
       branch(0xe9, 0, kOther + 4),
       {5},
       K::kJump,
       kNot,
       0,
       kOther + 4},
      {"jump for the thunk", branch(0xe9, 0, kIndirectThunk), {0xff, 0xe0}, {2}, K::kJumpInd, 0},
      {"indirect for another jump", branch(0xe9, 0, kOther), {0xff, 0xe0}, {2}, K::kJumpInd, kNot},
      {"a direct call for that of a table", kCallPv, branch(0xe8, 0, kOther), {5}, K::kCall, 0, 0, kOther},
      {"the no-op behind it",
       kCallPv + kTest + kRet,
       branch(0xe8, 0, kOther) + Bytes{0x90} + kTest + kRet,
       {1, 2, 1},
       K::kRet,
       1,
       5},
      {"no no-op behind it",
       kCallPv + kTest + kRet,
       branch(0xe8, 0, kOther) + Bytes{0x50} + kTest + kRet,
       {1, 2, 1},
       K::kRet,
       kNot,
       5},
      {"instructions of other lengths",
       kTest + kTest + kRet,
       Bytes{0x0f, 0x1f, 0x40, 0x00} + kRet,
       {4, 1},
       K::kRet,
       0},
      {"an end within an instruction", kNop5 + kRet, kTest + kRet, {2, 1}, K::kRet, kNot},
      {"cut where the file goes on", kTest + kTest, Bytes{0x89, 0xc0}, {2}, K::kNone, 0},
      {"cut within an instruction", kNop5, Bytes{0x89, 0xc0}, {2}, K::kNone, kNot},
      {"other condition's target", {0x74, 0x10}, {0x74, 0x20}, {2}, K::kCond, kNot, 0, 0x22},
  };
  for (const Case& c : cases) EXPECT_EQ(begin_of(c, "x86_64", 62), c.want) << c.name;
}

TEST_F(FileTextTest, WhatArm64KernelsPatch) {
  const Bytes nop{0x1f, 0x20, 0x03, 0xd5}, bl{0x40, 0, 0, 0x94}, b{0x40, 0, 0, 0x14},
      ret{0xc0, 0x03, 0x5f, 0xd6};
  const Case cases[] = {
      {"no call of ftrace", bl + ret, nop + ret, {4, 4}, K::kRet, 0},
      {"a key that is on", nop + ret, b, {4}, K::kJump, kNot, 0, 0x100},
      {"a key that is off", b + ret, nop + ret, {4, 4}, K::kRet, kNot},
  };
  for (const Case& c : cases) EXPECT_EQ(begin_of(c, "aarch64", 183), c.want) << c.name;
}

}  // namespace
}  // namespace asof::test
