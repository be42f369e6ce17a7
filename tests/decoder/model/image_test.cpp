// Files as text: mapping, the parts of an ELF file, and files with false contents (decoder/model/image.h).
#include "decoder/model/image.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "tests/support/elf_writer.h"
#include "tests/support/sim_random.h"
#include "tests/support/temp_dir.h"

namespace asof::test {
namespace {

std::string write_file(const TempDir& dir, const std::string& name, std::span<const uint8_t> bytes) {
  const std::string path = (dir.path() / name).string();
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return path;
}

std::vector<uint8_t> sample_executable() {
  ExecutableSpec spec;
  spec.text.assign(64, 0x90);
  spec.symbols = {{"main", 0x401000, 16}, {"helper", 0x401010, 32}};
  for (uint8_t i = 0; i < 20; ++i) spec.build_id.push_back(static_cast<uint8_t>(0xa0 + i));
  return make_executable(spec);
}

TEST(MappedFile, MapsAndKeepsItsPath) {
  const TempDir dir;
  const std::vector<uint8_t> bytes{1, 2, 3};
  const auto file = MappedFile::open(write_file(dir, "f", bytes));
  ASSERT_TRUE(file);
  EXPECT_TRUE(std::ranges::equal((*file)->bytes(), bytes));
  EXPECT_EQ((*file)->path(), (dir.path() / "f").string());
}

TEST(MappedFile, EmptyFileIsFine) {
  const TempDir dir;
  const auto file = MappedFile::open(write_file(dir, "empty", {}));
  ASSERT_TRUE(file);
  EXPECT_TRUE((*file)->bytes().empty());
}

TEST(MappedFile, ErrorsNameThePathAndTheReason) {
  const TempDir dir;
  const auto missing = MappedFile::open((dir.path() / "missing").string());
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::kCannotRead);
  EXPECT_EQ(missing.error().where, (dir.path() / "missing").string());
  EXPECT_NE(missing.error().reason.find("No such file"), std::string::npos);
  const auto directory = MappedFile::open(dir.path().string());
  ASSERT_FALSE(directory);
  EXPECT_EQ(directory.error().code, Code::kNotRegularFile);
}

TEST(ElfImage, SegmentsSymbolsSectionsBuildId) {
  const TempDir dir;
  const auto image = ElfImage::open(write_file(dir, "exe", sample_executable()));
  ASSERT_TRUE(image) << image.error().reason;
  EXPECT_EQ((*image)->machine(), EM_X86_64);
  EXPECT_EQ((*image)->build_id(), "a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3");
  const auto segments = (*image)->segments();
  const auto text = std::ranges::find_if(segments, [](const ElfSegment& s) { return s.address == 0x401000; });
  ASSERT_NE(text, segments.end());
  EXPECT_TRUE(text->executable);
  EXPECT_EQ(text->file_offset, 0x1000U);
  ASSERT_GE(text->bytes.size(), 64U);
  EXPECT_EQ(text->bytes[0], 0x90);
  const auto symbols = (*image)->symbols();
  ASSERT_EQ(symbols.size(), 2U);
  EXPECT_EQ(symbols[1].name, "helper");
  EXPECT_EQ(symbols[1].value, 0x401010U);
  EXPECT_EQ(symbols[1].size, 32U);
  EXPECT_EQ((*image)->symbol_value("helper"), 0x401010U);
  EXPECT_EQ((*image)->symbol_value("help"), std::nullopt);
  const auto sections = (*image)->sections();
  const auto section = std::ranges::find_if(sections, [](const auto& s) { return s.name == ".text"; });
  ASSERT_NE(section, sections.end());
  EXPECT_TRUE(section->executable);
  EXPECT_EQ(section->bytes.size(), 64U);
}

TEST(ElfImage, CoreHasSegmentsOnly) {
  const TempDir dir;
  const std::vector<uint8_t> text(8192, 0xcc), module(100, 0x90);
  const auto bytes = make_core({{0xffffffff81000000, text}, {0xffffffffc0000000, module}});
  const auto image = ElfImage::open(write_file(dir, "kcore", bytes));
  ASSERT_TRUE(image) << image.error().reason;
  EXPECT_EQ((*image)->type(), ET_CORE);
  EXPECT_EQ((*image)->build_id(), "");
  ASSERT_EQ((*image)->segments().size(), 2U);
  EXPECT_EQ((*image)->segments()[0].bytes.size(), 8192U);
  EXPECT_EQ((*image)->segments()[1].address, 0xffffffffc0000000U);
  EXPECT_EQ((*image)->segments()[1].bytes.size(), 100U);
  EXPECT_TRUE((*image)->symbols().empty());
  EXPECT_EQ((*image)->symbol_value("main"), std::nullopt);
  EXPECT_TRUE((*image)->sections().empty());
}

TEST(ElfImage, SegmentOfATruncatedFileIsCut) {
  const TempDir dir;
  const std::vector<uint8_t> text(8192, 0xcc);
  auto bytes = make_core({{0xffffffff81000000, text}});
  bytes.resize(4096 + 1000);
  const auto image = ElfImage::open(write_file(dir, "kcore", bytes));
  ASSERT_TRUE(image) << image.error().reason;
  ASSERT_EQ((*image)->segments().size(), 1U);
  EXPECT_EQ((*image)->segments()[0].bytes.size(), 1000U);
  EXPECT_EQ((*image)->segments()[0].mem_size, 8192U);
  EXPECT_EQ((*image)->stated_size(), 4096U + 8192);
  // Where not even the program headers are there, their end is all that is known.
  bytes.resize(sizeof(Elf64_Ehdr) + 10);
  EXPECT_EQ((*ElfImage::open(write_file(dir, "kcore", bytes)))->stated_size(),
            sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr));
}

TEST(ElfImage, StatesWhereItEnds) {
  const auto exe = sample_executable();
  const TempDir dir;
  // Its section headers come last.
  for (const size_t size : {exe.size(), exe.size() - 1, exe.size() - 300, size_t{4096}}) {
    const auto image = ElfImage::open(write_file(dir, "exe", std::span(exe).first(size)));
    ASSERT_TRUE(image) << image.error().reason;
    EXPECT_EQ((*image)->stated_size(), exe.size()) << size;
  }
  std::vector<uint8_t> followed = exe;
  followed.resize(followed.size() + 100, 1);
  EXPECT_EQ((*ElfImage::open(write_file(dir, "exe", followed)))->stated_size(), exe.size());
}

// eu-strip -f leaves the program headers of the file that it was made from.
TEST(ElfImage, WhereCodeWasThereIsNoneInAFileOfDebugInformation) {
  std::vector<uint8_t> bytes = sample_executable();
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof header);
  const TempDir dir;
  EXPECT_FALSE((*ElfImage::open(write_file(dir, "exe", bytes)))->is_debug_only());
  const uint32_t nobits = SHT_NOBITS;
  std::memcpy(bytes.data() + header.e_shoff + sizeof(Elf64_Shdr) + offsetof(Elf64_Shdr, sh_type), &nobits,
              sizeof nobits);
  const auto image = ElfImage::open(write_file(dir, "exe.debug", bytes));
  ASSERT_TRUE(image) << image.error().reason;
  EXPECT_TRUE((*image)->is_debug_only());
  ASSERT_FALSE((*image)->segments().empty());
  for (const ElfSegment& s : (*image)->segments()) EXPECT_TRUE(s.bytes.empty());
  EXPECT_EQ((*image)->symbols().size(), 2U);
}

TEST(ElfImage, WhatIsNoElfSaysSo) {
  const TempDir dir;
  const std::vector<uint8_t> text{'h', 'e', 'l', 'l', 'o'}, magic{0x7f, 'E', 'L', 'F'};
  for (const auto& bytes : {text, magic, std::vector<uint8_t>{}}) {
    const auto image = ElfImage::open(write_file(dir, "file", bytes));
    ASSERT_FALSE(image);
    EXPECT_EQ(image.error().code, Code::kBadElf);
    EXPECT_FALSE(image.error().hint.empty());
  }
}

TEST(ElfImage, TestProgramItself) {
  const auto image = ElfImage::open("/proc/self/exe");
  ASSERT_TRUE(image) << image.error().reason;
  EXPECT_FALSE((*image)->segments().empty());
  EXPECT_GT((*image)->symbols().size(), 100U);
}

// Queries everything of an image, and reads every byte that it returns.
uint64_t read_all(const ElfImage& image) {
  uint64_t sum = image.machine() + image.type() + image.build_id().size();
  for (const ElfSegment& s : image.segments()) {
    for (uint8_t b : s.bytes) sum += b;
  }
  for (const ElfSymbol& s : image.symbols()) sum += s.value + s.name.size();
  sum += image.symbol_value("helper").value_or(0);
  for (const auto& s : image.sections()) {
    for (uint8_t b : s.bytes) sum += b;
    sum += s.name.size();
  }
  return sum;
}

// A truncated file is refused, or gives a part of what the complete one does: bytes that are in the file, at
// their addresses, and no symbol or build-id that the complete one does not have.
TEST(ElfImage, TruncatedAtManySizes) {
  const TempDir dir;
  const std::vector<uint8_t> good = sample_executable();
  const auto whole = ElfImage::open(write_file(dir, "whole", good));
  ASSERT_TRUE(whole) << whole.error().reason;
  const auto symbols = (*whole)->symbols();
  size_t opened = 0, refused = 0, with_all_text = 0;
  for (size_t size = 0; size < good.size(); size += size < 512 || size + 1024 > good.size() ? 7 : 101) {
    SCOPED_TRACE(size);
    const auto image = ElfImage::open(write_file(dir, "f", std::span(good).first(size)));
    if (!image) {
      EXPECT_EQ(image.error().code, Code::kBadElf);
      ++refused;
      continue;
    }
    ++opened;
    read_all(**image);
    for (const ElfSegment& s : (*image)->segments()) {
      if (s.bytes.empty()) continue;
      ASSERT_LE(s.file_offset + s.bytes.size(), size);
      EXPECT_TRUE(std::ranges::equal(s.bytes, std::span(good).subspan(s.file_offset, s.bytes.size())));
      with_all_text += s.address == 0x401000 && s.bytes.size() >= 64 ? 1 : 0;
    }
    EXPECT_TRUE((*image)->build_id().empty() || (*image)->build_id() == (*whole)->build_id());
    for (const ElfSymbol& s : (*image)->symbols()) {
      EXPECT_TRUE(std::ranges::any_of(symbols, [&](const ElfSymbol& w) {
        return w.value == s.value && w.size == s.size && (s.name.empty() || w.name.starts_with(s.name));
      })) << s.name;
    }
  }
  EXPECT_GT(refused, 3U);
  EXPECT_GT(opened, 100U);
  EXPECT_GT(with_all_text, 10U);
}

TEST(ElfImage, BitsFlippedAndFieldsReplaced) {
  const TempDir dir;
  const std::vector<uint8_t> good = sample_executable();
  SimRandom random(42);
  size_t opened = 0;
  for (int n = 0; n < 1500; ++n) {
    std::vector<uint8_t> bad = good;
    for (uint64_t k = random.between(1, 4); k > 0; --k) {
      // Headers at the beginning; sections, symbols and their headers at the end.
      const uint64_t at =
          random.chance(40) ? random.below(256) : bad.size() - 1 - random.below(bad.size() - 0x1040);
      if (random.chance(50)) {
        bad[at] ^= static_cast<uint8_t>(1U << random.below(8));
      } else {
        const uint64_t values[] = {
            0, 1, UINT64_MAX, uint64_t{1} << 63, bad.size(), bad.size() - 1, random.next()};
        const uint64_t value = values[random.below(std::size(values))];
        std::memcpy(bad.data() + at, &value, std::min<size_t>(random.chance(50) ? 8 : 4, bad.size() - at));
      }
    }
    const auto image = ElfImage::open(write_file(dir, "f", bad));
    if (!image) continue;
    ++opened;
    read_all(**image);
  }
  EXPECT_GT(opened, 150U);
}

TEST(ElfImage, OverlappingNamesStayBounded) {
  ExecutableSpec spec;
  spec.text.assign(64, 0x90);
  for (uint64_t i = 0; i < 2000; ++i)
    spec.symbols.push_back({"s" + std::string(1000, 'x'), 0x401000 + i % 64, 1});
  std::vector<uint8_t> bytes = make_executable(spec);
  const TempDir dir;
  const auto image = ElfImage::open(write_file(dir, "f", bytes));
  ASSERT_TRUE(image);
  uint64_t total = 0;
  for (const ElfSymbol& s : (*image)->symbols()) total += s.name.size();
  EXPECT_LE(total, 4 * bytes.size());
}

}  // namespace
}  // namespace asof::test
