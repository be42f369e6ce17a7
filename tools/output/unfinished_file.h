// A file under another name until it is complete.
#pragma once
#include <optional>
#include <string>

#include "textstore/result.h"
#include "tools/output/output.h"

namespace asof {

// What is wrong with writing to `path`: it is, under whatever name, a file that this process reads, or one of a
// directory capture. It would be lost.
std::optional<Error> refuse_input(const std::string& path);

// Makes a file beside `path` under a name that nobody can foresee, so that nobody can have put a link there, which
// `name` becomes. Where `path` is a link, it becomes what that leads to: the link is to stay. Returns the descriptor.
// Not beside what refuse_input() refuses, nor for "-": who writes to standard output opens an Output.
Result<int> make_unfinished(std::string& path, std::string& name);
// Gives it its name, unless that has become the name of an input.
Result<void> name_unfinished(const std::string& name, const std::string& path);

// Removed unless it was given its own name.
class UnfinishedFile {
 public:
  explicit UnfinishedFile(const std::string& path);
  ~UnfinishedFile();
  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;

  // Why there is none, if it could not be made.
  const std::optional<Error>& error() const { return error_; }
  int fd() const { return fd_; }
  // Its bytes through a buffer, under the name it will have.
  Output output() const { return Output::to(fd_, path_); }
  // Under its own name, with all bytes on the disk first: a machine that fails leaves the whole file or none.
  Result<void> keep();

 private:
  std::string path_, name_;
  std::optional<Error> error_;
  int fd_ = -1;
  bool kept_ = false;
};

}  // namespace asof
