// Which files a piece of work has read, and which it looked for in vain: what its result depends on.
#pragma once
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

struct stat;

namespace asof {

struct FileState {
  std::string path;
  bool there = false;
  uint64_t device = 0, inode = 0, size = 0;
  int64_t modified = 0, changed = 0;  // st_mtim, st_ctim in ns

  auto operator<=>(const FileState&) const = default;
};
// Of what the path names now.
FileState file_state(const std::string& path);
FileState file_state(const std::string& path, const struct stat& status);

// Files that are opened while it exists, by any thread. One at a time.
class FilesRead {
 public:
  FilesRead();
  ~FilesRead();
  FilesRead(const FilesRead&) = delete;
  FilesRead& operator=(const FilesRead&) = delete;

  // Those since the last call, each once, sorted.
  std::vector<FileState> take();

  // Those who open files call these.
  static void note(const std::string& path, const struct stat& status);
  static void note_missing(const std::string& path);

  // For a program that writes files, which must not take the place of those it reads: all that are noted from now on,
  // by whom ever, are known by is_input(). Not for a library: its process may read any number.
  static void remember_inputs();
  static bool is_input(const struct stat& status);

 private:
  void add(FileState state);
  std::mutex mutex_;
  std::vector<FileState> files_;
};

}  // namespace asof
