// Malicious perf.data files, as files and as pipes: for each one that opens, everything the reader offers is
// read. Seeds: any perf.data, the smaller the better.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "decoder/perf/perf_data.h"
#include "decoder/perf/records.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int fd = ::memfd_create("perf_data_fuzz", MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, 0) != 0 || ::pwrite(fd, data, size, 0) != static_cast<ssize_t>(size))
    std::abort();
  const auto opened = asof::PerfData::open("/proc/self/fd/" + std::to_string(fd));
  if (!opened) return 0;
  uint64_t sum = 0;
  (*opened)->for_each([&](const asof::Record& record) {
    sum += asof::describe_record(record).size();
    return true;
  });
  for (const auto& image : (*opened)->bpf_images()) {
    for (const auto& function : image.functions) {
      for (const uint8_t byte : function.bytes) sum += byte;
    }
  }
  std::vector<asof::Notice> notices;
  uint64_t end = 0;
  for (const auto& stream : asof::make_streams(**opened, notices)) {
    end = 0;
    for (const auto& piece : stream.pieces) {
      if (piece.offset < end || piece.bytes.empty()) std::abort();  // pieces are in order and do not overlap
      end = piece.offset + piece.bytes.size();
      for (const uint8_t byte : piece.bytes) sum += byte;
    }
  }
  return sum == UINT64_MAX ? 1 : 0;
}
