#include "tools/output/gzip.h"

#include <zlib.h>

#include <array>
#include <new>

#include "textstore/check.h"

namespace asof {
namespace {

constexpr int kGzip = 15 + 16;  // largest window, gzip's header
constexpr int kMemory = 8;      // zlib's default
constexpr size_t kPiece = 1 << 16;

}  // namespace

struct GzipWriter::Impl {
  z_stream z{};
  Write write;
  std::array<unsigned char, kPiece> out{};
};

GzipWriter::GzipWriter(Write write, int level) : impl_(std::make_unique<Impl>()) {
  impl_->write = std::move(write);
  const int ready = deflateInit2(&impl_->z, level, Z_DEFLATED, kGzip, kMemory, Z_DEFAULT_STRATEGY);
  if (ready == Z_MEM_ERROR) throw std::bad_alloc();  // told as such (E-FILE-093)
  ASOF_CHECK(ready == Z_OK);
}

GzipWriter::~GzipWriter() { deflateEnd(&impl_->z); }

void GzipWriter::deflate_all(int flush) {
  z_stream& z = impl_->z;
  do {
    z.next_out = impl_->out.data();
    z.avail_out = kPiece;
    deflate(&z, flush);
    impl_->write({reinterpret_cast<const char*>(impl_->out.data()), kPiece - z.avail_out});
  } while (z.avail_out == 0);
}

void GzipWriter::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t n = std::min<size_t>(bytes.size(), 1U << 30U);
    impl_->z.next_in = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));  // zlib only reads
    impl_->z.avail_in = static_cast<unsigned>(n);
    deflate_all(Z_NO_FLUSH);
    bytes.remove_prefix(n);
  }
}

void GzipWriter::finish() {
  impl_->z.avail_in = 0;
  deflate_all(Z_FINISH);
}

}  // namespace asof
