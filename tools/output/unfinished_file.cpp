#include "tools/output/unfinished_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "decoder/io/files_read.h"

namespace asof {

namespace {

namespace fs = std::filesystem;

// What `perf record` writes into its directory. Only some of it may have been read.
bool is_part_of_directory(const fs::path& below) {
  const std::string first = below.begin()->string();
  return first == "data" || first.starts_with("data.") || first.starts_with("kcore_dir");
}

bool lies_in_capture(const std::string& path) {
  std::error_code failed;
  const fs::path file = fs::canonical(path, failed);
  if (failed) return false;
  for (fs::path folder = file.parent_path(); folder != folder.parent_path(); folder = folder.parent_path()) {
    struct stat data {};
    if (::stat((folder / "data").c_str(), &data) == 0 && FilesRead::is_input(data) &&
        is_part_of_directory(file.lexically_relative(folder)))
      return true;
  }
  return false;
}

std::unexpected<Error> cannot_write(const std::string& path) {
  return fail(Code::kCannotWrite, path, Error::kNoOffset,
              std::string("cannot write: ") + std::strerror(errno), "choose another file with -o");
}

}  // namespace

std::optional<Error> refuse_input(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  const bool read = FilesRead::is_input(status);
  if (!read && !lies_in_capture(path)) return std::nullopt;
  return Error{
      Code::kCannotWrite, path, Error::kNoOffset,
      read ? "this file is read: it would be lost" : "this file is part of the capture: it would be lost",
      "choose another file with -o"};
}

Result<int> make_unfinished(std::string& path, std::string& name) {
  if (path == "-")
    return fail(Code::kCannotWrite, "standard output", Error::kNoOffset, "this output has to be a file",
                "choose a file with -o");
  if (auto refused = refuse_input(path)) return std::unexpected(std::move(*refused));
  std::error_code error;
  if (const auto target = fs::weakly_canonical(path, error); !error) path = target.string();
  name = path + ".XXXXXX";
  const int fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) {
    name.clear();
    return cannot_write(path);
  }
  const mode_t mask = ::umask(0);
  ::umask(mask);
  ::fchmod(fd, 0666 & ~mask);
  return fd;
}

Result<void> name_unfinished(const std::string& name, const std::string& path) {
  if (auto refused = refuse_input(path)) return std::unexpected(std::move(*refused));
  if (::rename(name.c_str(), path.c_str()) == 0) return {};
  return cannot_write(path);
}

UnfinishedFile::UnfinishedFile(const std::string& path) : path_(path) {
  const auto made = make_unfinished(path_, name_);
  if (made)
    fd_ = *made;
  else
    error_ = made.error();
}

UnfinishedFile::~UnfinishedFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  if (!kept_) ::unlink(name_.c_str());
}

Result<void> UnfinishedFile::keep() {
  // Not every file system has fsync(2).
  const bool synced = ::fsync(fd_) == 0 || errno == EINVAL || errno == EROFS;
  if (!synced) return cannot_write(path_);
  const auto named = name_unfinished(name_, path_);
  kept_ = named.has_value();
  return named;
}

}  // namespace asof
