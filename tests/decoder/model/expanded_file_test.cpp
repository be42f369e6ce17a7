// Compressed files, expanded in memory with a bound.
#include "decoder/model/expanded_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "decoder/io/files_read.h"
#include "tests/support/temp_dir.h"

namespace asof::test {
namespace {

constexpr size_t kSize = 300'000;

std::string packed(const TempDir& dir, const char* program, const char* suffix) {
  const std::string path = (dir.path() / "m.ko").string();
  std::ofstream out(path, std::ios::binary);
  for (size_t i = 0; i < kSize; ++i) out.put(static_cast<char>(i * i >> 7));
  out.close();
  const std::string command = std::string(program) + " -q -k " + path;
  if (std::system((std::string("command -v ") + program + " >/dev/null").c_str()) != 0) return {};
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  return path + suffix;
}

// One bit of the byte that so many bytes from the end begins, of the file's checksum.
void change_byte(const std::string& path, int back) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(-back, std::ios::end);
  const char was = static_cast<char>(file.get());
  file.seekp(-back, std::ios::end);
  file.put(static_cast<char>(was ^ 1));
}

TEST(ExpandedFile, SameBytesAsBefore) {
  for (const auto& [program, suffix] : {std::pair{"xz", ".xz"}, {"zstd", ".zst"}, {"gzip", ".gz"}}) {
    const TempDir dir;
    const std::string path = packed(dir, program, suffix);
    if (path.empty()) continue;
    EXPECT_TRUE(is_compressed_name(path));
    FilesRead read;
    const auto bytes = expand_file(path);
    ASSERT_NE(bytes, nullptr) << path;
    const auto files = read.take();
    ASSERT_EQ(files.size(), 1U) << "what is made of it depends on the file";
    EXPECT_EQ(files[0].path, path);
    ASSERT_EQ(bytes->size(), kSize);
    for (size_t i = 0; i < kSize; ++i) ASSERT_EQ((*bytes)[i], static_cast<uint8_t>(i * i >> 7)) << i;
    EXPECT_NE(expand_file(path, kSize), nullptr);
    EXPECT_EQ(expand_file(path, kSize - 1), nullptr) << "bounded";
    for (int back = 1; back <= 4; ++back) {
      change_byte(path, back);
      EXPECT_EQ(expand_file(path), nullptr) << "the checksum is another: " << back;
      change_byte(path, back);
    }
    EXPECT_NE(expand_file(path), nullptr);
    std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
    EXPECT_EQ(expand_file(path), nullptr) << "cut off";
  }
}

TEST(ExpandedFile, OthersAreRefused) {
  const TempDir dir;
  EXPECT_EQ(expand_file((dir.path() / "none.xz").string()), nullptr);
  EXPECT_FALSE(is_compressed_name("/a/b.ko"));
}

}  // namespace
}  // namespace asof::test
