// Checks that segments leave out nothing of a stream.
#pragma once
#include <gtest/gtest.h>

#include <vector>

#include "arch/arch.h"

namespace asof::x86::test {

// Every byte of the stream is in exactly one segment or in a gap before one.
inline void expect_all_covered(const Stream& stream, const std::vector<Segment>& segments) {
  std::vector<int> covered(stream.end());
  const auto cover = [&](uint64_t begin, uint64_t end) {
    ASSERT_LE(end, covered.size());
    for (uint64_t i = begin; i < end; ++i) ++covered[i];
  };
  for (size_t i = 0; i < segments.size(); ++i) {
    EXPECT_EQ(segments[i].index, segments[i].begin);
    cover(segments[i].begin, segments[i].end);
    if (segments[i].before) cover(segments[i].before->begin, segments[i].before->end);
  }
  for (const StreamPiece& p : stream.pieces)
    for (uint64_t i = p.offset; i < p.offset + p.bytes.size(); ++i) ASSERT_EQ(covered[i], 1) << "byte " << i;
}

}  // namespace asof::x86::test
