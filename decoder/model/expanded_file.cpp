#include "decoder/model/expanded_file.h"

#include <archive.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "decoder/io/descriptor.h"
#include "decoder/io/files_read.h"

namespace asof {
namespace {

struct Closer {
  void operator()(archive* a) const { archive_read_free(a); }
};

}  // namespace

bool is_compressed_name(const std::string& path) {
  return path.ends_with(".xz") || path.ends_with(".zst") || path.ends_with(".gz");
}

std::shared_ptr<const std::vector<uint8_t>> expand_file(const std::string& path, uint64_t limit) {
  constexpr size_t kBlock = 64 << 10;
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return nullptr;
  FilesRead::note(path, status);
  const std::unique_ptr<archive, Closer> in(archive_read_new());
  archive_entry* entry = nullptr;
  if (!in || archive_read_support_filter_xz(in.get()) != ARCHIVE_OK ||
      archive_read_support_filter_zstd(in.get()) != ARCHIVE_OK ||
      archive_read_support_filter_gzip(in.get()) != ARCHIVE_OK ||
      archive_read_support_format_raw(in.get()) != ARCHIVE_OK ||
      archive_read_open_fd(in.get(), file.get(), kBlock) != ARCHIVE_OK ||
      archive_read_next_header(in.get(), &entry) != ARCHIVE_OK)
    return nullptr;
  auto out = std::make_shared<std::vector<uint8_t>>();
  while (true) {
    const size_t size = out->size();
    out->resize(size + kBlock);
    const la_ssize_t n = archive_read_data(in.get(), out->data() + size, kBlock);
    if (n < 0 || size + static_cast<uint64_t>(n) > limit) return nullptr;
    out->resize(size + static_cast<size_t>(n));
    if (n == 0) return out;
  }
}

}  // namespace asof
