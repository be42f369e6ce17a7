// docs/folders.md lists all folders with code, lowest first: a file includes files of its own row or rows above
// it only.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace asof::test {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = fs::path(ASOF_TEST_DATA) / "../..";
constexpr auto kLayers = {"textstore", "arch", "decoder", "tools"};

std::vector<std::string> listed_folders() {
  std::vector<std::string> all;
  std::ifstream in(kRoot / "docs/folders.md");
  const std::regex row(R"(\| `([a-z0-9_/]+)` \| ([^|]+) \|)");
  std::smatch m;
  for (std::string line; std::getline(in, line);) {
    if (std::regex_match(line, m, row)) all.push_back(m[1]);
  }
  return all;
}

bool is_source(const fs::path& p) {
  const std::string extension = p.extension().string();
  return extension == ".cpp" || extension == ".h" || extension == ".c" || extension == ".inc";
}

// All source files, by path from the root.
std::vector<std::string> sources() {
  std::vector<std::string> all;
  for (const char* layer : kLayers) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / layer)) {
      if (is_source(entry.path())) all.push_back(fs::relative(entry.path(), kRoot).string());
    }
  }
  return all;
}

std::string folder_of(const std::string& path) { return fs::path(path).parent_path().string(); }

// Paths in quotes, from the root of the tree: generated headers have none.
std::vector<std::string> includes_of(const std::string& path) {
  std::vector<std::string> all;
  std::ifstream in(kRoot / path);
  const std::regex include("#include \"([a-z0-9_]+/[^\"]+)\".*");
  std::smatch m;
  for (std::string line; std::getline(in, line);) {
    if (std::regex_match(line, m, include)) all.push_back(m[1]);
  }
  return all;
}

TEST(Folders, EveryFolderHasARow) {
  const std::vector<std::string> list = listed_folders();
  ASSERT_GT(list.size(), 30U);
  for (const std::string& path : sources()) {
    const std::string folder = folder_of(path);
    // Guests of boards are programs of their own.
    if (folder.starts_with("tools/board/") && folder.ends_with("/guest")) continue;
    EXPECT_TRUE(std::ranges::find(list, folder) != list.end()) << path << ": no row in docs/folders.md";
  }
  for (const std::string& folder : list) EXPECT_TRUE(fs::is_directory(kRoot / folder)) << folder;
}

TEST(Folders, IncludesGoUpTheList) {
  const std::vector<std::string> list = listed_folders();
  const auto row = [&](const std::string& folder) { return std::ranges::find(list, folder) - list.begin(); };
  size_t seen = 0;
  for (const std::string& path : sources()) {
    const std::string from = folder_of(path);
    for (const std::string& included : includes_of(path)) {
      const std::string to = folder_of(included);
      ++seen;
      if (included.starts_with("tests/")) {
        EXPECT_TRUE(from.starts_with("tools/board")) << path << " includes " << included;
        continue;
      }
      if (!fs::exists(kRoot / included)) continue;  // of a library
      EXPECT_LE(row(to), row(from)) << path << " includes " << included;
      EXPECT_FALSE(from == "arch/arm64" && to == "arch/x86") << path << " includes " << included;
    }
  }
  EXPECT_GT(seen, 1000U);
}

// Classes with a name that the linker sees: in no unnamed namespace. Namespaces and what they have begin lines.
std::vector<std::string> types_of(const std::string& path) {
  static const std::regex opened(R"((?:inline )?namespace(?: ([\w:]+))?(?: ASOF_\w+)? \{)"),
      closed("\\}  // namespace.*"),
      type(R"((?:class|struct|union)(?: ASOF_\w+)? (\w+)(?: final)?(?: : .*)? ?\{.*)");
  std::vector<std::string> within, all;
  std::ifstream in(kRoot / path);
  std::smatch m;
  for (std::string line; std::getline(in, line);) {
    if (std::regex_match(line, m, opened)) {
      within.push_back(m[1]);
    } else if (std::regex_match(line, closed) && !within.empty()) {
      within.pop_back();
    } else if (std::regex_match(line, m, type) && std::ranges::find(within, "") == within.end()) {
      std::string name;
      for (const std::string& space : within) name += space + "::";
      all.push_back(name + m[1].str());
    }
  }
  return all;
}

// Two of one name in one program are one to the linker, and whichever it takes is wrong for the other's code.
TEST(Folders, TypesHaveOneDefinition) {
  std::vector<std::string> paths = sources();
  for (const char* folder : {"api", "include", "tests"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      const std::string path = fs::relative(entry.path(), kRoot).string();
      if (is_source(path) && path.find("node_modules") == std::string::npos) paths.push_back(path);
    }
  }
  std::map<std::string, std::set<std::string>> files;
  for (const std::string& path : paths) {
    for (const std::string& type : types_of(path)) files[type].insert(path);
  }
  EXPECT_GT(files.size(), 500U);
  for (const auto& [type, where] : files) {
    EXPECT_EQ(where.size(), 1U) << type << ": " << *where.begin() << ", " << *where.rbegin();
  }
}

// Without memory for a name, libstdc++'s directory iterators, and what is made of them, end the process, whatever they are given for
// errors: decoder/io/folder.h has ours. The tools that are not part of asof may use them.
TEST(Folders, AreNotReadByIteratorsThatEndTheProcess) {
  const std::regex iterator("directory_iterator|fs::is_empty|filesystem::is_empty");
  for (const std::string& path : sources()) {
    if (path.starts_with("tools/board/") || path.starts_with("decoder/io/folder.")) continue;
    std::ifstream in(kRoot / path);
    for (std::string line; std::getline(in, line);)
      EXPECT_FALSE(std::regex_search(line, iterator)) << path << ": " << line;
  }
}

}  // namespace
}  // namespace asof::test
