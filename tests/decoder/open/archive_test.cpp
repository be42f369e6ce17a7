// Packed captures that are malicious or damaged: refused with a reason, and nothing is written outside.
// Archives are built byte by byte here, so that headers can contain anything.
#include "decoder/open/archive.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "tests/support/perf_data_writer.h"
#include "tests/support/temp_dir.h"
#include "tests/support/truth.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

// One entry of a ustar archive (POSIX.1-1988). `size_field`: the size in the header, if it is false.
struct Entry {
  std::string name;
  std::string content;
  char type = '0';
  std::string link{};
  std::string size_field{};
};

void put_octal(char* at, size_t width, uint64_t value) {
  for (size_t i = width - 1; i-- > 0; value >>= 3U) at[i] = static_cast<char>('0' + (value & 7U));
}

std::string tar_of(const std::vector<Entry>& entries, bool whole = true) {
  std::string out;
  for (const Entry& e : entries) {
    char h[512] = {};
    std::memcpy(h, e.name.data(), std::min<size_t>(e.name.size(), 100));
    put_octal(h + 100, 8, 0644);
    put_octal(h + 124, 12, e.content.size());
    if (!e.size_field.empty())
      std::memcpy(h + 124, e.size_field.data(), std::min<size_t>(e.size_field.size(), 11));
    put_octal(h + 136, 12, 1);
    h[156] = e.type;
    std::memcpy(h + 157, e.link.data(), std::min<size_t>(e.link.size(), 100));
    std::memcpy(h + 257,
                "ustar\0"
                "00",
                8);
    std::memset(h + 148, ' ', 8);
    uint64_t sum = 0;
    for (const char c : h) sum += static_cast<unsigned char>(c);
    put_octal(h + 148, 7, sum);
    out.append(h, sizeof h);
    out += e.content;
    out.resize((out.size() + 511) / 512 * 512);
  }
  if (whole) out.append(1024, '\0');
  return out;
}

class ArchiveTest : public ::testing::Test {
 protected:
  Result<size_t> unpack(const std::string& bytes) {
    fs::create_directories(to());
    const fs::path file = dir_.path() / "x.tar";
    write_bytes(file, {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
    return unpack_archive(file.string(), to().string());
  }
  fs::path to() const { return dir_.path() / "to"; }
  // Everything below the test's directory except the archive itself.
  std::vector<std::string> files() const {
    std::vector<std::string> out;
    for (const auto& e : fs::recursive_directory_iterator(dir_.path())) {
      if (!e.is_directory() && e.path().filename() != "x.tar")
        out.push_back(fs::relative(e.path(), dir_.path()));
    }
    return out;
  }
  TempDir dir_{parent_in_memory()};
};

TEST_F(ArchiveTest, FilesAndDirectoriesComeOut) {
  const auto done = unpack(tar_of({{"./", "", '5'}, {"a/", "", '5'}, {"a/b/c.txt", "hello"}, {"./d", ""}}));
  ASSERT_TRUE(done) << done.error().reason;
  EXPECT_EQ(read_bytes(to() / "a/b/c.txt"), (std::vector<uint8_t>{'h', 'e', 'l', 'l', 'o'}));
  EXPECT_EQ(fs::file_size(to() / "d"), 0U);
}

TEST_F(ArchiveTest, NamesThatLeadOutAreRefused) {
  for (const char* name : {"../evil", "a/../../evil", "/tmp/asof-evil-archive-test", "..", "a/..", ""}) {
    const auto done = unpack(tar_of({{name, "x"}}));
    ASSERT_FALSE(done) << name;
    EXPECT_TRUE(done.error().code == Code::kArchiveRefused || done.error().code == Code::kBadArchive) << name;
    EXPECT_TRUE(files().empty()) << name;
    EXPECT_FALSE(fs::exists("/tmp/asof-evil-archive-test"));
  }
}

// As /bin is one in the tree of a machine.
TEST_F(ArchiveTest, LinksThatStayInsideComeOut) {
  const auto done = unpack(tar_of({{"symfs/bin", "", '2', "usr/bin"},
                                   {"symfs/usr/lib/up", "", '2', "../bin/./a"},
                                   {"symfs/usr/bin/a", "hello"}}));
  ASSERT_TRUE(done) << done.error().reason;
  EXPECT_TRUE(fs::is_symlink(to() / "symfs/bin"));
  EXPECT_EQ(fs::file_size(to() / "symfs/bin/a"), 5U);
  EXPECT_EQ(fs::file_size(to() / "symfs/usr/lib/up"), 5U);
}

TEST_F(ArchiveTest, LinksThatMayLeadOutAreRefused) {
  // The last: by itself it stays inside, over the link before it it would not.
  const std::vector<std::vector<Entry>> archives = {
      {{"l", "", '2', "../x"}},
      {{"a/l", "", '2', "../../x"}},
      {{"a/l", "", '2', "b/../../../x"}},
      {{"l", "", '2', "/etc/passwd"}},
      {{"l", "", '2', ""}},
      {{"s/f", "x"}, {"a/b/d", "", '2', "../../s"}, {"a/b/l", "", '2', "d/../../z"}}};
  for (const auto& entries : archives) {
    const auto done = unpack(tar_of(entries));
    ASSERT_FALSE(done) << entries.back().link;
    EXPECT_EQ(done.error().code, Code::kArchiveRefused) << entries.back().link;
    for (const auto& f : files()) EXPECT_FALSE(fs::is_symlink(dir_.path() / f)) << f;
    fs::remove_all(to());
  }
}

TEST_F(ArchiveTest, NothingIsWrittenThroughALink) {
  for (const char* name : {"link/x", "link", "link/"}) {
    const auto done = unpack(tar_of({{"there/f", "x"}, {"link", "", '2', "there"}, {name, "y"}}));
    ASSERT_FALSE(done) << name;
    EXPECT_EQ(done.error().code, Code::kArchiveRefused) << name;
    EXPECT_FALSE(fs::exists(to() / "there/x"));
    fs::remove_all(to());
  }
}

TEST_F(ArchiveTest, LinksAndDevicesAreRefused) {
  for (const char type : {'1', '2', '3', '4', '6'}) {
    const auto done = unpack(tar_of({{"link", "", type, "/etc/passwd"}, {"link/x", "y"}}));
    ASSERT_FALSE(done) << type;
    EXPECT_EQ(done.error().code, Code::kArchiveRefused) << type;
    EXPECT_TRUE(files().empty()) << type;
  }
}

TEST_F(ArchiveTest, OneNameTwiceIsRefused) {
  const auto done = unpack(tar_of({{"a", "1"}, {"./a", "2"}}));
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::kArchiveRefused);
  EXPECT_EQ(read_bytes(to() / "a"), std::vector<uint8_t>{'1'});
}

TEST_F(ArchiveTest, FileBelowAFileIsRefused) {
  const auto done = unpack(tar_of({{"a", "1"}, {"a/b", "2"}}));
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::kArchiveRefused);
}

TEST_F(ArchiveTest, SizesThatLieAreFound) {
  // More than the archive holds; more than any disk holds; the largest number of the format.
  for (const char* size_field : {"00000010000", "00700000000", "77777777777"}) {
    const auto done = unpack(tar_of({{"a", "1", '0', "", size_field}}));
    ASSERT_FALSE(done) << size_field;
    EXPECT_TRUE(done.error().code == Code::kBadArchive || done.error().code == Code::kArchiveRefused)
        << done.error().code;
    for (const auto& f : files()) EXPECT_LT(fs::file_size(dir_.path() / f), 1U << 20U);
    fs::remove_all(to());
  }
}

TEST_F(ArchiveTest, EveryCutIsAnErrorOrWhole) {
  const std::string whole = tar_of({{"a", std::string(700, 'x')}, {"b", "y"}}, false);
  size_t refused = 0;
  for (size_t size = 1; size < whole.size(); size += size % 512 == 0 ? 1 : 7) {
    fs::remove_all(to());
    const auto done = unpack(whole.substr(0, size));
    // A cut between two blocks may be one between two entries, which cannot be detected.
    EXPECT_TRUE(!done || size % 512 == 0) << size;
    refused += done ? 0 : 1;
  }
  EXPECT_GT(refused, 100U);
}

TEST_F(ArchiveTest, CompressedBombIsRefused) {
  // 1.3 GiB of zeros in one entry; the packed file is far too small to unpack to that.
  const std::string head = tar_of({{"a", "", '0', "", "12400000000"}}, false);
  std::vector<uint8_t> bytes(head.begin(), head.end());
  bytes.resize(bytes.size() + (64U << 20U));
  const std::vector<uint8_t> packed = zstd_compress(bytes);
  fs::create_directories(to());
  write_bytes(dir_.path() / "x.tar", packed);
  ASSERT_TRUE(is_archive((dir_.path() / "x.tar").string()));
  const auto done = unpack_archive((dir_.path() / "x.tar").string(), to().string());
  ASSERT_FALSE(done);
  for (const auto& f : files()) EXPECT_LT(fs::file_size(dir_.path() / f), 1U << 30U);
}

TEST_F(ArchiveTest, MoreFoldersThanACaptureHasAreRefused) {
  std::vector<Entry> entries;
  for (int i = 0; i < 1000; ++i) {
    std::string name = "d" + std::to_string(i);
    while (name.size() < 90) name += "/a";
    entries.push_back({name + "/f", ""});
  }
  const auto done = unpack(tar_of(entries));
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::kArchiveRefused);
  EXPECT_NE(done.error().reason.find("folders"), std::string::npos) << done.error().reason;
  size_t folders = 0;
  for (const auto& e : fs::recursive_directory_iterator(to())) folders += e.is_directory() ? 1 : 0;
  EXPECT_LE(folders, 16384U);
  // Few enough.
  entries.resize(300);
  fs::remove_all(to());
  EXPECT_TRUE(unpack(tar_of(entries)));
}

// A sparse file (GNU tar, type S): one byte of content, and a hole up to `size`.
std::string sparse_tar(int files, uint64_t size) {
  std::string out;
  for (int i = 0; i < files; ++i) {
    std::string one = tar_of({{"s" + std::to_string(i), "x", 'S'}}, false);
    char* const h = one.data();
    std::memcpy(h + 257, "ustar  ", 8);  // as GNU tar writes it: in POSIX archives there are no such files
    put_octal(h + 386, 12, size - 1);    // offset and length of the one piece
    put_octal(h + 398, 12, 1);
    put_octal(h + 483, 12, size);
    std::memset(h + 148, ' ', 8);
    uint64_t sum = 0;
    for (int k = 0; k < 512; ++k) sum += static_cast<unsigned char>(h[k]);
    put_octal(h + 148, 7, sum);
    out += one;
  }
  out.append(1024, '\0');
  return out;
}

TEST_F(ArchiveTest, HolesAreLimitedInSum) {
  constexpr uint64_t kSize = uint64_t{600} << 20U;  // below the limit each, above it together
  EXPECT_TRUE(unpack(sparse_tar(1, kSize)));
  EXPECT_EQ(fs::file_size(to() / "s0"), kSize);
  fs::remove_all(to());
  const auto done = unpack(sparse_tar(3, kSize));
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::kArchiveRefused);
}

TEST_F(ArchiveTest, FlippedBytesNeverEscape) {
  const std::string whole = tar_of({{"perf.data/data", std::string(600, 'x')}, {"symfs/b", "y"}});
  size_t unpacked = 0;
  for (size_t at = 0; at < whole.size(); at += 7) {
    for (const unsigned bit : {0x01U, 0x10U, 0x80U}) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) ^ bit);
      fs::remove_all(to());
      unpacked += unpack(bytes) ? 1U : 0U;
      for (const auto& f : files()) ASSERT_TRUE(f.starts_with("to/")) << f << " at " << at;
    }
  }
  EXPECT_GT(unpacked, 0U);
}

TEST_F(ArchiveTest, WithoutACaptureItSaysSo) {
  ASSERT_TRUE(unpack(tar_of({{"README", "hello"}})));
  const auto opened = open_capture((dir_.path() / "x.tar").string(), {});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::kArchiveWithoutCapture);
  EXPECT_EQ(opened.error().where, (dir_.path() / "x.tar").string());
}

TEST(Archive, IsKnownByItsContent) {
  const TempDir dir;
  write_bytes(dir.path() / "no.tar", std::vector<uint8_t>(600, 'x'));
  EXPECT_FALSE(is_archive((dir.path() / "no.tar").string()));
  EXPECT_FALSE(is_archive((dir.path() / "absent.tar").string()));
  EXPECT_FALSE(is_archive(dir.path().string()));
  write_bytes(dir.path() / "perf.data", std::vector<uint8_t>{'P', 'E', 'R', 'F', 'I', 'L', 'E', '2'});
  EXPECT_FALSE(is_archive((dir.path() / "perf.data").string()));
}

TEST(Archive, TemporaryTreeIsRemoved) {
  std::string path;
  {
    const auto tree = TemporaryTree::make();
    ASSERT_TRUE(tree);
    path = (*tree)->path();
    EXPECT_TRUE(fs::is_directory(path));
    write_bytes(path + "/x", std::vector<uint8_t>{1});
  }
  EXPECT_FALSE(fs::exists(path));
}

}  // namespace
}  // namespace asof::test
