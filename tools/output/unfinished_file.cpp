#include "tools/output/unfinished_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace asof {

int make_unfinished(std::string& path, std::string& name) {
  std::error_code error;
  if (const auto target = std::filesystem::weakly_canonical(path, error); !error) path = target.string();
  name = path + ".XXXXXX";
  const int fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) return fd;
  const mode_t mask = ::umask(0);
  ::umask(mask);
  ::fchmod(fd, 0666 & ~mask);
  return fd;
}

UnfinishedFile::UnfinishedFile(const std::string& path) : path_(path), fd_(make_unfinished(path_, name_)) {}

UnfinishedFile::~UnfinishedFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  if (!kept_) ::unlink(name_.c_str());
}

Result<void> UnfinishedFile::keep() {
  // Not every file system has fsync(2).
  const bool synced = ::fsync(fd_) == 0 || errno == EINVAL || errno == EROFS;
  kept_ = synced && ::rename(name_.c_str(), path_.c_str()) == 0;
  if (kept_) return {};
  return fail(Code::kCannotWrite, path_, Error::kNoOffset, std::strerror(errno));
}

}  // namespace asof
