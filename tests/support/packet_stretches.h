// What is listed of a capture's streams, stretch by stretch, for comparison with readers that go through contiguous bytes.
#pragma once
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "decoder/model/capture.h"
#include "tests/support/listed_packets.h"

namespace asof::test {

// `take(bytes, offset of the first one, lines)`, until an assertion fails.
template <class Take>
void each_stretch(const Stream& stream, std::span<const ListedPacket> lines, Take&& take) {
  std::vector<uint8_t> scratch;
  for (size_t i = 0, line = 0; i < stream.pieces.size() && !testing::Test::HasFatalFailure();) {
    const uint64_t begin = stream.pieces[i].offset;
    uint64_t end = begin;
    do {
      end += stream.pieces[i].size();
    } while (++i < stream.pieces.size() && !stream.pieces[i].discontinuity && stream.pieces[i].offset == end);
    const size_t first = line;
    while (line < lines.size() && (lines[line].is_lost() || lines[line].offset < end)) ++line;
    take(stream.bytes(begin, end, scratch), begin, lines.subspan(first, line - first));
  }
}

// `take(capture, number of the stream, lines)` for each stream that can be listed, whose lines cover it.
template <class Take>
void each_listed_stream(const std::string& path, Take&& take) {
  SCOPED_TRACE(path);
  auto capture = open_capture(path, {});
  ASSERT_TRUE(capture.has_value()) << capture.error().reason;
  const auto arch = capture->arch();
  for (size_t i = 0; i < capture->streams.size() && !testing::Test::HasFatalFailure(); ++i) {
    const auto reader = (*arch)->packets(capture->streams[i], i);
    if (!reader) continue;
    const std::vector<ListedPacket> lines = listed_packets(*reader);
    ASSERT_EQ(not_covered(capture->streams[i], lines), "");
    take(*capture, i, std::span<const ListedPacket>(lines));
  }
}

}  // namespace asof::test
