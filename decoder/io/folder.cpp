#include "decoder/io/folder.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <memory>
#include <new>
#include <ranges>
#include <string_view>
#include <utility>

namespace asof {
namespace {

struct Close {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

// Lack of memory is told as everywhere else.
std::error_code last_error() {
  if (errno == ENOMEM) throw std::bad_alloc();
  return {errno, std::generic_category()};
}

std::string joined(const std::string& folder, const std::string& name) {
  return folder.ends_with('/') ? folder + name : folder + "/" + name;
}

}  // namespace

std::vector<std::string> names_in(const std::string& folder, std::error_code& error) {
  std::vector<std::string> names;
  error.clear();
  const std::unique_ptr<DIR, Close> open(::opendir(folder.c_str()));
  if (open == nullptr) {
    error = last_error();
    return names;
  }
  errno = 0;
  while (const dirent* entry = ::readdir(open.get())) {
    const std::string_view name(entry->d_name);
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  if (errno != 0) error = last_error();
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> paths_in(const std::string& folder, std::error_code& error) {
  std::vector<std::string> paths = names_in(folder, error);
  for (std::string& path : paths) path = joined(folder, path);
  return paths;
}

void walk_files(const std::string& root, const std::function<bool(const std::string& path)>& take) {
  std::error_code ignored;
  std::vector<std::string> folders{root};  // the next one last
  while (!folders.empty()) {
    const std::string folder = std::move(folders.back());
    folders.pop_back();
    std::vector<std::string> inner;
    for (std::string& path : paths_in(folder, ignored)) {
      if (std::filesystem::symlink_status(path, ignored).type() == std::filesystem::file_type::directory)
        inner.push_back(std::move(path));
      else if (!take(path))
        return;
    }
    std::ranges::move(inner | std::views::reverse, std::back_inserter(folders));
  }
}

}  // namespace asof
