// Small recordings for the tests of streams, and the streams that are made of them.
#pragma once
#include <gtest/gtest.h>

#include <random>

#include "decoder/aux/aux_streams.h"
#include "tests/decoder/perf/perf_bytes.h"

namespace asof::test {

inline constexpr uint64_t kTruncated = 1, kOverwrite = 2, kPartial = 4, kCollision = 8;

// Trace-like bytes: a PSB every 512 bytes, noise between.
inline Bytes trace(size_t size, uint32_t seed = 1) {
  std::mt19937 random(seed);
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = i % 512 < 16 ? (i % 2 != 0 ? 0x82 : 0x02) : static_cast<uint8_t>(random() | 1U);
  }
  return bytes;
}
inline Bytes part(const Bytes& bytes, size_t from, size_t to) {
  return Bytes(bytes.begin() + static_cast<ptrdiff_t>(from), bytes.begin() + static_cast<ptrdiff_t>(to));
}

struct Made {
  PerfDataPtr data;
  std::vector<Notice> notices;
  std::vector<Stream> streams;
  const Stream& one() const {
    EXPECT_EQ(streams.size(), 1U);
    return streams.at(0);
  }
  Bytes bytes() const {
    Bytes all;
    for (const StreamPiece& piece : one().pieces)
      all.insert(all.end(), piece.bytes.begin(), piece.bytes.end());
    return all;
  }
};

inline Made make(const PerfBytes& file) {
  Made made{open_bytes(file.file()), {}, {}};
  EXPECT_TRUE(made.data->notices().empty());
  made.streams = make_streams(*made.data, made.notices);
  return made;
}

inline PerfBytes start(uint64_t snapshot = 0, uint64_t per_cpu = 1) {
  PerfBytes file;
  file.attr({.type = 8, .sample_type = kUsualSampleType, .ids = {5, 6}}).attr({.ids = {7}});
  file.intel_pt_info(snapshot, per_cpu);
  return file;
}
inline Tail cpu0(uint64_t time) { return {.time = time, .cpu = 0, .pid = 9, .tid = 9, .id = 5}; }

}  // namespace asof::test
