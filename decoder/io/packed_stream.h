// The bytes of a file that may be compressed (zstd, gzip, xz), with the checksums that it has of them: libarchive compares
// no CRC of gzip, and whoever stops at the end of a tar does not come to the others.
#pragma once
#include <archive.h>
#include <zlib.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace asof {

class PackedStream {
 public:
  struct Fault {
    int number = 0;      // errno; others: damage
    std::string reason;  // empty: there is none
  };

  // Of a regular file that is open. It is not closed.
  explicit PackedStream(int file);
  // How many bytes were read; 0: the end, and all of it is as its checksums say; nothing: fault() says why.
  std::optional<size_t> read(std::span<uint8_t> out);
  const Fault& fault() const { return fault_; }
  uint64_t file_offset() const;  // about where in the file

 private:
  struct CloseArchive {
    void operator()(archive* a) const { archive_read_free(a); }
  };
  struct CloseGzip {
    void operator()(gzFile f) const { gzclose_r(f); }
  };
  std::optional<size_t> read_gzip(std::span<uint8_t> out);
  void open_archive();
  std::nullopt_t fail(int number, const char* reason);

  const int file_;
  Fault fault_;
  std::unique_ptr<archive, CloseArchive> archive_;
  std::unique_ptr<gzFile_s, CloseGzip> gzip_;
  bool ended_ = false;
};

}  // namespace asof
