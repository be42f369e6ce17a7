// A file of one zstd frame with a checksum of its content, which libarchive 3.6 does not write: a changed bit of an archive is
// then damage, and not another capture.
#pragma once
#include <zstd.h>

#include <memory>
#include <span>
#include <vector>

namespace asof {

class ZstdFile {
 public:
  explicit ZstdFile(int fd) : fd_(fd), context_(ZSTD_createCCtx()), room_(ZSTD_CStreamOutSize()) {
    if (context_) ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_checksumFlag, 1);
  }
  // False: errno says why.
  bool write(std::span<const char> bytes) { return compress(bytes, ZSTD_e_continue); }
  bool finish() { return compress({}, ZSTD_e_end); }

 private:
  struct Free {
    void operator()(ZSTD_CCtx* c) const { ZSTD_freeCCtx(c); }
  };
  bool compress(std::span<const char> bytes, ZSTD_EndDirective how);

  int fd_;
  std::unique_ptr<ZSTD_CCtx, Free> context_;
  std::vector<char> room_;
};

}  // namespace asof
