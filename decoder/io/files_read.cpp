#include "decoder/io/files_read.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <utility>

namespace asof {
namespace {

std::atomic<FilesRead*> current = nullptr;

// By device and inode: a file may have many names.
struct Inputs {
  std::atomic<bool> wanted = false;
  std::mutex mutex;
  std::set<std::pair<uint64_t, uint64_t>> all;
};
Inputs& inputs() {
  static Inputs only;
  return only;
}

int64_t nanoseconds(const struct timespec& t) { return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec; }

}  // namespace

FileState file_state(const std::string& path, const struct stat& s) {
  return {path,
          true,
          s.st_dev,
          s.st_ino,
          static_cast<uint64_t>(s.st_size),
          nanoseconds(s.st_mtim),
          nanoseconds(s.st_ctim)};
}

FileState file_state(const std::string& path) {
  struct stat s {};
  return ::stat(path.c_str(), &s) == 0 && S_ISREG(s.st_mode) ? file_state(path, s) : FileState{path};
}

FilesRead::FilesRead() { current = this; }
FilesRead::~FilesRead() { current = nullptr; }

std::vector<FileState> FilesRead::take() {
  const std::lock_guard lock(mutex_);
  std::vector<FileState> out = std::exchange(files_, {});
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

void FilesRead::add(FileState state) {
  const std::lock_guard lock(mutex_);
  files_.push_back(std::move(state));
}

void FilesRead::remember_inputs() { inputs().wanted = true; }

bool FilesRead::is_input(const struct stat& status) {
  Inputs& known = inputs();
  const std::lock_guard lock(known.mutex);
  return known.all.contains({status.st_dev, status.st_ino});
}

void FilesRead::note(const std::string& path, const struct stat& status) {
  if (Inputs& known = inputs(); known.wanted) {
    const std::lock_guard lock(known.mutex);
    known.all.emplace(status.st_dev, status.st_ino);
  }
  if (FilesRead* log = current) log->add(file_state(path, status));
}

void FilesRead::note_missing(const std::string& path) {
  if (FilesRead* log = current) log->add({path});
}

}  // namespace asof
