// A file under another name until it is complete.
#pragma once
#include <string>

#include "textstore/result.h"
#include "tools/output/output.h"

namespace asof {

// Makes a file beside `path` under a name that nobody can foresee, so that nobody can have put a link there, which
// `name` becomes. Where `path` is a link, it becomes what that leads to: the link is to stay. Returns the descriptor;
// below 0: errno says why.
int make_unfinished(std::string& path, std::string& name);

// Removed unless it was given its own name.
class UnfinishedFile {
 public:
  explicit UnfinishedFile(const std::string& path);
  ~UnfinishedFile();
  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;

  int fd() const { return fd_; }  // below 0: it could not be made; errno says why
  // Its bytes through a buffer, under the name it will have.
  Output output() const { return Output::to(fd_, path_); }
  // Under its own name, with all bytes on the disk first: a machine that fails leaves the whole file or none.
  Result<void> keep();

 private:
  std::string path_, name_;
  int fd_ = -1;
  bool kept_ = false;
};

}  // namespace asof
