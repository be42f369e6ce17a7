// What is in a folder: all of it, in order, whatever may not be read.
#include "decoder/io/folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/perf_data_writer.h"
#include "tests/support/temp_dir.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

class FolderList : public ::testing::Test {
 protected:
  FolderList() {
    fs::create_directories(dir_ / "b/inner");
    fs::create_directory(dir_ / "empty");
    for (const char* name : {"z", "a", "b/y", "b/inner/.hidden"}) write_text(dir_ / name, "x");
    fs::create_directory_symlink(dir_ / "b", dir_ / "link");
  }
  std::string root() const { return dir_.path(); }
  Names walked(size_t most) const {
    Names found;
    walk_files(root(), [&](const std::string& path) {
      found.push_back(path.substr(root().size() + 1));
      return found.size() < most;
    });
    return found;
  }

  TempDir dir_;
};

TEST_F(FolderList, NamesAreInOrder) {
  std::error_code error;
  EXPECT_EQ(names_in(root(), error), (Names{"a", "b", "empty", "link", "z"}));
  EXPECT_FALSE(error);
  EXPECT_EQ(names_in(root() + "/empty", error), Names{});
  EXPECT_FALSE(error);
  EXPECT_EQ(paths_in(root() + "/link", error), (Names{root() + "/link/inner", root() + "/link/y"}));
  EXPECT_EQ(paths_in(root() + "/b/", error), (Names{root() + "/b/inner", root() + "/b/y"}));
}

TEST_F(FolderList, WhatIsNoFolderIsAnError) {
  std::error_code error;
  EXPECT_EQ(names_in(root() + "/nothing", error), Names{});
  EXPECT_EQ(error, std::errc::no_such_file_or_directory);
  EXPECT_EQ(names_in(root() + "/a", error), Names{});
  EXPECT_EQ(error, std::errc::not_a_directory);
}

TEST_F(FolderList, LinksAreNotFollowed) {
  EXPECT_EQ(walked(100), (Names{"a", "link", "z", "b/y", "b/inner/.hidden"}));
  EXPECT_EQ(walked(2), (Names{"a", "link"}));
}

}  // namespace
}  // namespace asof::test
