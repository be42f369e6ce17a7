// Malicious perf.data: for each one that opens, everything the reader offers is read. The first byte says whether the
// rest is a file as it is, a file or pipe, or records of a pipe some of which are to be compressed: no mutation of
// bytes makes a zstd stream. Seeds: any perf.data, the smaller the better, after a 0.
#include <zstd.h>

#include <array>
#include <cstdlib>

#include "decoder/perf/perf_data.h"
#include "decoder/perf/records.h"
#include "tests/fuzz/fuzz.h"

namespace {

using asof::fuzz::Bytes;

constexpr size_t kPipeHeader = 16;
constexpr size_t kMostInRecord = 60'000;

void put(std::vector<uint8_t>& out, uint64_t value, unsigned size) {
  for (unsigned i = 0; i < size; ++i) out.push_back(static_cast<uint8_t>(value >> (8 * i)));
}

// The first `plain` bytes of the pipe as they are, the rest in COMPRESSED records of one zstd frame.
std::vector<uint8_t> compressed_pipe(Bytes pipe, size_t plain, size_t in_record) {
  std::vector<uint8_t> out(pipe.begin(), pipe.begin() + static_cast<std::ptrdiff_t>(plain));
  const Bytes rest = pipe.subspan(plain);
  std::vector<uint8_t> packed(ZSTD_compressBound(rest.size()));
  const size_t size = ZSTD_compress(packed.data(), packed.size(), rest.data(), rest.size(), 1);
  if (ZSTD_isError(size) != 0U) std::abort();
  for (size_t at = 0; at < size; at += in_record) {
    const size_t n = std::min(in_record, size - at);
    put(out, 81, 4), put(out, 0, 2), put(out, 8 + n, 2);  // perf_event_header: type, misc, size
    out.insert(out.end(), packed.begin() + static_cast<std::ptrdiff_t>(at),
               packed.begin() + static_cast<std::ptrdiff_t>(at + n));
  }
  return out;
}

uint64_t read_all(const asof::PerfData& data) {
  uint64_t sum = 0;
  data.for_each([&](const asof::Record& record) {
    sum += asof::describe_record(record).size();
    return true;
  });
  for (const auto& image : data.bpf_images()) {
    for (const auto& function : image.functions) {
      for (const uint8_t byte : function.bytes) sum += byte;
    }
  }
  std::vector<asof::Notice> notices;
  for (const auto& stream : asof::make_streams(data, notices)) {
    uint64_t end = 0;
    for (const auto& piece : stream.pieces) {
      FUZZ_CHECK(piece.offset >= end && !piece.bytes.empty());  // in order, not overlapping
      end = piece.offset + piece.bytes.size();
      for (const uint8_t byte : piece.bytes) sum += byte;
    }
  }
  return sum;
}

}  // namespace

FUZZ_TARGET(perf_data) {
  asof::fuzz::Input in(bytes);
  const uint8_t choice = in.byte();
  std::vector<uint8_t> pipe;
  Bytes file = in.rest();
  if ((choice & 1) != 0 && file.size() > kPipeHeader) {
    const size_t plain = kPipeHeader + (static_cast<size_t>(choice >> 1U) * 16) % (file.size() - kPipeHeader);
    pipe = compressed_pipe(file, plain, (choice & 2) != 0 ? kMostInRecord : 100);
    file = pipe;
  }
  const auto opened = asof::PerfData::open(asof::fuzz::as_file(file));
  if (!opened) return;
  volatile uint64_t sum = read_all(**opened);
  (void)sum;
}
