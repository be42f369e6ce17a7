#include "tools/output/unfinished_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace asof {

UnfinishedFile::UnfinishedFile(const std::string& path) : path_(path), name_(path + ".XXXXXX") {
  fd_ = ::mkostemp(name_.data(), O_CLOEXEC);
  if (fd_ < 0) return;
  const mode_t mask = ::umask(0);
  ::umask(mask);
  ::fchmod(fd_, 0666 & ~mask);
}

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
