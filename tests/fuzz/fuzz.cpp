#include "tests/fuzz/fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

#include "tests/support/temp_dir.h"

namespace asof::fuzz {
namespace {

constexpr std::string_view kMark = "\n=== ";
constexpr size_t kMostFiles = 64;

bool is_name(std::string_view name) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-' || c == '/';
  };
  return !name.empty() && name.size() < 100 && name.front() != '/' && name.back() != '/' &&
         name.find("..") == std::string_view::npos && std::ranges::all_of(name, plain);
}

}  // namespace

std::vector<Target>& targets() {
  static std::vector<Target> list;
  return list;
}

std::string as_file(Bytes bytes) {
  static const int fd = ::memfd_create("fuzz", MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, 0) != 0 ||
      ::pwrite(fd, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    std::abort();
  return "/proc/self/fd/" + std::to_string(fd);
}

std::map<std::string, Bytes> split_files(Bytes bytes) {
  std::map<std::string, Bytes> files;
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto next_name = [&](size_t from) {  // after its mark
    const size_t mark = all.find(kMark, from);
    return mark == std::string_view::npos ? all.size() : mark + kMark.size();
  };
  size_t name = all.starts_with(kMark.substr(1)) ? kMark.size() - 1 : next_name(0);
  while (name < all.size() && files.size() < kMostFiles) {
    const size_t line_end = all.find('\n', name);
    if (line_end == std::string_view::npos) break;
    const std::string_view called = all.substr(name, line_end - name);
    name = next_name(line_end);
    // The line end before a mark belongs to it; one line end alone is both.
    const size_t end = name == all.size() ? name : name - kMark.size();
    if (is_name(called))
      files[std::string(called)] = bytes.subspan(line_end + 1, std::max(end, line_end + 1) - line_end - 1);
  }
  return files;
}

void move_plan(std::map<std::string, Bytes>& files) {
  auto core = files.extract("core.asof");
  if (core.empty()) return;
  core.key() = "plan/core.asof";
  files.insert(std::move(core));
}

void write_file(const std::filesystem::path& path, Bytes bytes) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  std::FILE* f = std::fopen(path.c_str(), "wb");
  if (f == nullptr) return;  // a name that is a folder already
  if (!bytes.empty() && std::fwrite(bytes.data(), 1, bytes.size(), f) != bytes.size()) std::abort();
  if (std::fclose(f) != 0) std::abort();
}

std::string as_folder(const std::map<std::string, Bytes>& files) {
  static const test::TempDir folder;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    std::filesystem::remove_all(entry.path());
  for (const auto& [name, bytes] : files) write_file(folder.path() / name, bytes);
  return folder.path();
}

void fail(const char* what, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
  std::abort();
}

}  // namespace asof::fuzz
