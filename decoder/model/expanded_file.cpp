#include "decoder/model/expanded_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "decoder/io/descriptor.h"
#include "decoder/io/files_read.h"
#include "decoder/io/packed_stream.h"

namespace asof {

bool is_compressed_name(const std::string& path) {
  return path.ends_with(".xz") || path.ends_with(".zst") || path.ends_with(".gz");
}

std::shared_ptr<const std::vector<uint8_t>> expand_file(const std::string& path, uint64_t limit) {
  constexpr size_t kBlock = 64 << 10;
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return nullptr;
  FilesRead::note(path, status);
  PackedStream in(file.get());
  auto out = std::make_shared<std::vector<uint8_t>>();
  while (true) {
    const size_t size = out->size();
    out->resize(size + kBlock);
    const auto n = in.read(std::span(*out).subspan(size));
    if (!n || size + *n > limit) return nullptr;
    out->resize(size + *n);
    if (*n == 0) return out;
  }
}

}  // namespace asof
