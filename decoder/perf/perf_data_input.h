// Bytes of an input as one read-only mapping, whatever their source: a file, a pipe (spooled first), or the
// output of a decompressor. Spools are unlinked files, so neither a pipe nor a compressed capture has to fit
// in memory, and nothing remains when the process dies.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "decoder/io/mapped_files.h"
#include "textstore/result.h"

namespace asof {

class FileBytes {
 public:
  // What the user names: a file, or a pipe, which is spooled. "-" is standard input. Devices have no end and
  // are refused; a pipe that does not begin as perf.data does is not read any further.
  static Result<std::shared_ptr<const FileBytes>> open(const std::string& path);
  // What "-" is from now on: the first `size` bytes of an open regular file, which stays the caller's. Not while
  // another thread opens. `goes_on`: more of the recording will follow.
  static void set_standard_input(int fd, uint64_t size, bool goes_on = false);
  static bool standard_input_goes_on();
  // What a capture names: a regular file, and nothing that opening or reading could wait for.
  static Result<std::shared_ptr<const FileBytes>> open_part(const std::string& path);
  // The whole of an open regular file; `name` is for messages, and its path if it `is_path`. The descriptor stays the
  // caller's.
  static Result<std::shared_ptr<const FileBytes>> map(int fd, const std::string& name, bool is_path);
  ~FileBytes();
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  std::span<const uint8_t> bytes() const { return bytes_; }

 private:
  FileBytes() = default;
  static Result<std::shared_ptr<const FileBytes>> map_part(int fd, const std::string& name, uint64_t size,
                                                           bool is_path);
  std::span<const uint8_t> bytes_;
  std::optional<MappedFileEntry> entry_;
};

// Written once from start to end, then mapped. Lies in $TMPDIR, /var/tmp or /tmp.
class Spool {
 public:
  static Result<Spool> create();
  Spool(Spool&& other) noexcept;
  Spool& operator=(Spool&&) = delete;
  ~Spool();

  Result<void> append(std::span<const uint8_t> bytes);
  // Writes what append() holds back.
  Result<void> flush();
  int fd() const { return fd_; }
  uint64_t size() const { return written_ + buffer_.size(); }
  Result<std::shared_ptr<const FileBytes>> finish();

 private:
  explicit Spool(int fd) : fd_(fd) {}

  int fd_ = -1;
  uint64_t written_ = 0;
  std::vector<uint8_t> buffer_;
};

}  // namespace asof
