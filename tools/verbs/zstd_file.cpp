#include "tools/verbs/zstd_file.h"

#include <cerrno>

#include "tools/output/write_all.h"

namespace asof {

bool ZstdFile::compress(std::span<const char> bytes, ZSTD_EndDirective how) {
  ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
  for (size_t left = 1; left != 0 || in.pos < in.size;) {
    ZSTD_outBuffer out{room_.data(), room_.size(), 0};
    left = context_ ? ZSTD_compressStream2(context_.get(), &out, &in, how) : 0;
    if (!context_ || ZSTD_isError(left) != 0) {  // nothing else can fail
      errno = ENOMEM;
      return false;
    }
    if (!write_all(fd_, {room_.data(), out.pos})) return false;
    if (how == ZSTD_e_continue && in.pos == in.size) break;
  }
  return true;
}

}  // namespace asof
