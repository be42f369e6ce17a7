// Malicious block streams: opened, and every walk in them followed. Seeds: the output of `asof decode
// --format blocks` for small captures.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "decoder/blocks/block_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int fd = ::memfd_create("block_stream_fuzz", MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, 0) != 0 || ::pwrite(fd, data, size, 0) != static_cast<ssize_t>(size))
    std::abort();
  const auto capture = asof::blocks::BlockFile::open("/proc/self/fd/" + std::to_string(fd));
  if (!capture) return 0;
  uint64_t sum = 0;
  for (size_t i = 0; i < capture->streams.size(); ++i) {
    for (const auto& frame : capture->blocks->frames(i)) {
      const asof::Chunk chunk = capture->blocks->read(i, frame);
      for (auto step = chunk.steps.begin(); step != chunk.steps.end(); ++step) {
        if (step->count == 0 || step->count > step->block->count) std::abort();
        sum += step->block->bytes[step->block->size - 1];
      }
      for (const asof::Event& e : chunk.events) {
        if (e.step > chunk.steps.size()) std::abort();
      }
    }
  }
  return sum == UINT64_MAX ? 1 : 0;
}
