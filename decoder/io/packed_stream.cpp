#include "decoder/io/packed_stream.h"

#include <archive_entry.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string_view>

namespace asof {
namespace {

constexpr size_t kBlock = 64 << 10;

bool is_gzip(int file) {
  std::array<uint8_t, 2> magic{};
  return ::pread(file, magic.data(), magic.size(), 0) == 2 && magic[0] == 0x1f && magic[1] == 0x8b;
}

}  // namespace

PackedStream::PackedStream(int file) : file_(file) {
  if (!is_gzip(file)) {
    open_archive();
    return;
  }
  const int own = ::dup(file);
  if (own < 0) {
    fail(errno, std::strerror(errno));
    return;
  }
  gzip_.reset(gzdopen(own, "rb"));
  if (gzip_) {
    gzbuffer(gzip_.get(), kBlock);
  } else {
    ::close(own);
    fail(ENOMEM, "not enough memory");
  }
}

void PackedStream::open_archive() {
  archive_.reset(archive_read_new());
  archive* const a = archive_.get();
  if (a == nullptr) {
    fail(ENOMEM, "not enough memory");
    return;
  }
  archive_entry* entry = nullptr;
  for (const auto support :
       {archive_read_support_format_raw, archive_read_support_filter_zstd, archive_read_support_filter_xz}) {
    if (support(a) < ARCHIVE_WARN) {
      fail(archive_errno(a), archive_error_string(a));
      return;
    }
  }
  const bool opened = archive_read_open_fd(a, file_, kBlock) == ARCHIVE_OK;
  const int r = opened ? archive_read_next_header(a, &entry) : ARCHIVE_FATAL;
  ended_ = r == ARCHIVE_EOF;
  if (r < ARCHIVE_WARN) fail(archive_errno(a), archive_error_string(a));
}

std::nullopt_t PackedStream::fail(int number, const char* reason) {
  fault_ = {number, reason != nullptr && *reason != '\0' ? reason : "not enough memory"};
  return std::nullopt;
}

std::optional<size_t> PackedStream::read_gzip(std::span<uint8_t> out) {
  const int n = gzread(gzip_.get(), out.data(),
                       static_cast<unsigned>(std::min<size_t>(out.size(), std::numeric_limits<int>::max())));
  int error = Z_OK;
  const char* const said = gzerror(gzip_.get(), &error);
  // The end of the file inside of the stream is an error of the call that comes to it.
  if (n > 0 && error == Z_OK) return static_cast<size_t>(n);
  if (n == 0 && error == Z_OK) return 0;
  if (error == Z_ERRNO) return fail(errno, std::strerror(errno));
  // "<fd:4>: incorrect data check"
  const std::string_view reason(said);
  const size_t at = reason.find(": ");
  return fail(error == Z_MEM_ERROR ? ENOMEM : EILSEQ, at == std::string_view::npos ? said : said + at + 2);
}

std::optional<size_t> PackedStream::read(std::span<uint8_t> out) {
  if (!fault_.reason.empty()) return std::nullopt;
  if (ended_) return 0;
  if (gzip_) return read_gzip(out);
  const la_ssize_t n = archive_read_data(archive_.get(), out.data(), out.size());
  if (n < 0) return fail(archive_errno(archive_.get()), archive_error_string(archive_.get()));
  return static_cast<size_t>(n);
}

uint64_t PackedStream::file_offset() const {
  if (gzip_) return static_cast<uint64_t>(std::max<z_off_t>(gzoffset(gzip_.get()), 0));
  // libarchive forgets it with an error.
  return static_cast<uint64_t>(std::max<off_t>(::lseek(file_, 0, SEEK_CUR), 0));
}

}  // namespace asof
