#include "decoder/perf/perf_data_input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "decoder/io/descriptor.h"
#include "decoder/io/files_read.h"

namespace asof {
namespace {

constexpr size_t kBufferSize = 1U << 20;

// What "-" is; fd < 0: descriptor 0.
struct StandardInput {
  int fd = -1;
  uint64_t size = 0;
  bool goes_on = false;
} standard_input;

std::unexpected<Error> system_error(const std::string& where, const char* what, int error) {
  return fail(Code::kCannotReadInput, where, Error::kNoOffset,
              fmt::format("{}: {}", what, std::strerror(error)));
}

int open_unlinked(const std::string& directory) {
  int fd = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) return fd;
  std::string name = directory + "/asof-XXXXXX";  // file systems without O_TMPFILE
  fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd >= 0) ::unlink(name.c_str());
  return fd;
}

bool begins_as_perf_data(std::span<const uint8_t> bytes) {
  constexpr size_t kMagic = 7;  // "PERFILE2", "2ELIFREP", "PERFFILE"
  const std::string_view begin(reinterpret_cast<const char*>(bytes.data()), std::min(kMagic, bytes.size()));
  return begin == std::string_view("PERFILE").substr(0, begin.size()) ||
         begin == std::string_view("2ELIFRE").substr(0, begin.size()) ||
         begin == std::string_view("PERFFIL").substr(0, begin.size());
}

Result<std::shared_ptr<const FileBytes>> spool_all(int fd, const std::string& name) {
  auto spool = Spool::create();
  if (!spool) return std::unexpected(spool.error());
  std::vector<uint8_t> buffer(kBufferSize);
  for (;;) {
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got == 0) break;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(name, "cannot read", errno);
    if (auto done = spool->append(std::span(buffer).first(static_cast<size_t>(got))); !done) {
      return std::unexpected(done.error());
    }
    // Whoever reads it says what is wrong with it; it may have no end.
    const auto read = static_cast<size_t>(got);
    if (spool->size() == read && !begins_as_perf_data(std::span(buffer).first(read))) break;
  }
  return spool->finish();
}

}  // namespace

Result<std::shared_ptr<const FileBytes>> FileBytes::map(int fd, const std::string& name, bool is_path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return system_error(name, "cannot stat", errno);
  return map_part(fd, name, static_cast<uint64_t>(std::max<off_t>(info.st_size, 0)), is_path);
}

void FileBytes::set_standard_input(int fd, uint64_t size, bool goes_on) {
  standard_input = {fd, size, goes_on};
}
bool FileBytes::standard_input_goes_on() { return standard_input.fd >= 0 && standard_input.goes_on; }

Result<std::shared_ptr<const FileBytes>> FileBytes::map_part(int fd, const std::string& name, uint64_t size,
                                                             bool is_path) {
  std::shared_ptr<FileBytes> file(new FileBytes);
  if (size > 0) {
    void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (address == MAP_FAILED) return system_error(name, "cannot map", errno);
    file->bytes_ = {static_cast<const uint8_t*>(address), size};
    if (is_path) file->entry_.emplace(file->bytes_, name);
  }
  return file;
}

Result<std::shared_ptr<const FileBytes>> FileBytes::open_part(const std::string& path) {
  const Descriptor own(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (own.get() < 0) return system_error(path, "cannot open", errno);
  struct stat info {};
  if (::fstat(own.get(), &info) != 0) return system_error(path, "cannot stat", errno);
  if (!S_ISREG(info.st_mode))
    return fail(Code::kNotRegularFile, path, Error::kNoOffset, "not a regular file",
                "copy the capture again");
  FilesRead::note(path, info);
  return map(own.get(), path, true);
}

Result<std::shared_ptr<const FileBytes>> FileBytes::open(const std::string& path) {
  const bool is_stdin = path == "-";
  if (is_stdin && standard_input.fd >= 0)
    return map_part(standard_input.fd, "standard input", standard_input.size, false);
  const Descriptor own(is_stdin ? -1 : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!is_stdin && own.get() < 0) return system_error(path, "cannot open", errno);
  const int fd = is_stdin ? STDIN_FILENO : own.get();
  const std::string name = is_stdin ? "standard input" : path;
  struct stat info {};
  if (::fstat(fd, &info) != 0) return system_error(name, "cannot stat", errno);
  if (S_ISDIR(info.st_mode)) return system_error(name, "cannot read", EISDIR);
  if (!is_stdin && (S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode)))
    return fail(Code::kNotRegularFile, name, Error::kNoOffset, "a device is no recording",
                "give a file, a directory or a pipe");
  FilesRead::note(name, info);
  const bool from_start = S_ISREG(info.st_mode) && ::lseek(fd, 0, SEEK_CUR) == 0;
  return from_start ? map(fd, name, !is_stdin) : spool_all(fd, name);
}

FileBytes::~FileBytes() {
  entry_.reset();
  if (!bytes_.empty()) ::munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
}

Result<Spool> Spool::create() {
  const char* preferred = std::getenv("TMPDIR");
  const std::array<const char*, 3> places = {preferred, "/var/tmp", "/tmp"};
  int error = ENOENT;
  for (const char* place : places) {
    if (place == nullptr || *place == '\0') continue;
    const int fd = open_unlinked(place);
    if (fd >= 0) return Spool(fd);
    error = errno;
  }
  return fail(Code::kNoTemporaryCopy, "temporary file", Error::kNoOffset,
              fmt::format("cannot create one: {}", std::strerror(error)),
              "set TMPDIR to a writable directory");
}

Spool::Spool(Spool&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), written_(other.written_), buffer_(std::move(other.buffer_)) {}

Spool::~Spool() {
  if (fd_ >= 0) ::close(fd_);
}

Result<void> Spool::append(std::span<const uint8_t> bytes) {
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  return buffer_.size() < kBufferSize ? Result<void>() : flush();
}

Result<void> Spool::flush() {
  std::span<const uint8_t> left = buffer_;
  while (!left.empty()) {
    const ssize_t done = ::write(fd_, left.data(), left.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) {
      return fail(Code::kNoTemporaryCopy, "temporary file", written_,
                  fmt::format("cannot write: {}", std::strerror(errno)),
                  "free some space there, or set TMPDIR to a directory with more");
    }
    written_ += static_cast<uint64_t>(done);
    left = left.subspan(static_cast<size_t>(done));
  }
  buffer_.clear();
  return {};
}

Result<std::shared_ptr<const FileBytes>> Spool::finish() {
  if (auto done = flush(); !done) return std::unexpected(done.error());
  return FileBytes::map(fd_, "temporary file", false);
}

}  // namespace asof
