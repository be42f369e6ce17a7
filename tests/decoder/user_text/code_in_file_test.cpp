// Where files have code, and that the rest of a mapping is not sure.
#include "decoder/user_text/code_in_file.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tests/decoder/user_text/user_fixture.h"

namespace asof {
namespace {

std::vector<AddrRange> code_of(const test::Bytes& file) {
  const auto elf = ElfImage::parse(file, "file", nullptr);
  return elf ? code_in_file(**elf) : std::vector<AddrRange>{};
}

TEST(CodeInFile, IsItsExecutableSections) {
  test::Bytes file = test::program(0x90, 1);
  EXPECT_EQ(code_of(file), (std::vector<AddrRange>{{0x1000, 0x1040}}));
  // Without section headers, the segment: it has the note of the build-id as well.
  Elf64_Ehdr header;
  std::memcpy(&header, file.data(), sizeof header);
  header.e_shoff = header.e_shnum = header.e_shstrndx = 0;
  std::memcpy(file.data(), &header, sizeof header);
  EXPECT_EQ(code_of(file), (std::vector<AddrRange>{{0x1000, 0x1064}}));
}

// Every function of this program is within.
TEST(CodeInFile, OfThisProgram) {
  const auto elf = ElfImage::open("/proc/self/exe");
  ASSERT_TRUE(elf.has_value());
  const std::vector<AddrRange> code = code_in_file(**elf);
  ASSERT_FALSE(code.empty());
  size_t functions = 0;
  for (const ElfSymbol& symbol : (*elf)->symbols()) {
    for (const ElfSegment& s : (*elf)->segments()) {
      if (symbol.value < s.address || symbol.value >= s.address + s.bytes.size()) continue;
      const AddrRange offsets = range_of(symbol.value - s.address + s.file_offset, symbol.size);
      functions += symbol.size != 0 ? 1 : 0;
      EXPECT_TRUE(symbol.size == 0 ||
                  std::ranges::any_of(code, [&](const AddrRange& r) { return r.contains(offsets); }))
          << symbol.name;
    }
  }
  EXPECT_GT(functions, 100U);
}

class CodeInMapping : public test::User {};

TEST_F(CodeInMapping, WhatIsNoCodeIsUnsure) {
  file("/bin/a", 0x90, 1);
  map(7, "/bin/a", 1, test::Recording::at(1));
  r.writer.itrace_start(7, 7, test::Recording::at(10));
  open();
  EXPECT_FALSE(is_unsure(test::kCode, 100));
  EXPECT_FALSE(is_unsure(test::kCode + 63, 100));
  EXPECT_TRUE(is_unsure(test::kCode + 64, 100));  // the note of the build-id
  EXPECT_EQ(at(test::kCode + 63, 100), (std::vector<test::Bytes>{{0x90}}));
  EXPECT_EQ(at(test::kCode + 64, 100), (std::vector<test::Bytes>{{4}}));
}

}  // namespace
}  // namespace asof
