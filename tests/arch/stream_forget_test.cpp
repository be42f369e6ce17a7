// Trace larger than memory: what was read is given back, and can be read again.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "arch/stream.h"

namespace asof {
namespace {

constexpr size_t kSize = 32 << 20;

// A mapping of a file, unmapped at the end.
class Mapped {
 public:
  Mapped() {
    std::string name = (std::filesystem::temp_directory_path() / "asof-forget-XXXXXX").string();
    const int fd = ::mkstemp(name.data());
    EXPECT_GE(fd, 0);
    ::unlink(name.c_str());
    std::vector<uint8_t> bytes(kSize);
    for (size_t i = 0; i < kSize; ++i) bytes[i] = value(i);
    EXPECT_EQ(::write(fd, bytes.data(), kSize), static_cast<ssize_t>(kSize));
    at_ = ::mmap(nullptr, kSize, PROT_READ, MAP_PRIVATE, fd, 0);
    EXPECT_NE(at_, MAP_FAILED);
    ::close(fd);
  }
  ~Mapped() { ::munmap(at_, kSize); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  static uint8_t value(size_t i) { return static_cast<uint8_t>(i * 7 + i / 4096); }
  std::span<const uint8_t> bytes() const { return {static_cast<const uint8_t*>(at_), kSize}; }

 private:
  void* at_ = nullptr;
};

Stream stream_of(std::span<const uint8_t> bytes, bool mapped) {
  Stream s;
  constexpr size_t kCut = 10'000'001;  // inside a page: two pieces share it
  s.pieces.push_back({.offset = 500, .bytes = bytes.first(kCut), .mapped = mapped});
  s.pieces.push_back({.offset = 500 + kCut, .bytes = bytes.subspan(kCut), .mapped = mapped});
  return s;
}

size_t resident_pages() {
  std::ifstream statm("/proc/self/statm");
  size_t all = 0, resident = 0;
  statm >> all >> resident;
  return resident;
}

bool reads_right(const Stream& s) {
  std::vector<uint8_t> scratch;
  const auto bytes = s.bytes(s.begin(), s.end(), scratch);
  for (size_t i = 0; i < kSize; ++i)
    if (bytes[i] != Mapped::value(i)) return false;
  return true;
}

TEST(StreamForget, MemoryGoesAndBytesStay) {
  const Mapped file;
  const Stream s = stream_of(file.bytes(), true);
  uint64_t sum = 0;
  for (size_t i = 0; i < kSize; i += 512) sum += file.bytes()[i];
  EXPECT_NE(sum, 0U);
  const size_t before = resident_pages();
  s.forget(0, UINT64_MAX);
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  EXPECT_LT(resident_pages() + kSize / page / 2, before);
  EXPECT_TRUE(reads_right(s));
}

TEST(StreamForget, AnyRangeIsAllowed) {
  const Mapped file;
  const Stream s = stream_of(file.bytes(), true);
  for (const auto& [from, to] : std::vector<std::pair<uint64_t, uint64_t>>{
           {0, 0}, {0, 10}, {600, 700}, {9'999'000, 10'010'000}, {s.end(), UINT64_MAX}, {7000, 5000}})
    s.forget(from, to);
  EXPECT_TRUE(reads_right(s));
  Stream{}.forget(0, 100);
}

// Memory that is not backed by a file would be lost.
TEST(StreamForget, MemoryOfItsOwnStays) {
  std::vector<uint8_t> bytes(kSize);
  for (size_t i = 0; i < kSize; ++i) bytes[i] = Mapped::value(i);
  const Stream s = stream_of(bytes, false);
  s.forget(0, UINT64_MAX);
  EXPECT_TRUE(reads_right(s));
}

}  // namespace
}  // namespace asof
