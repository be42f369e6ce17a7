// Shards: every segment is in exactly one, and found without what precedes it.
#include "decoder/model/shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <list>
#include <map>
#include <random>
#include <string>

#include "decoder/model/capture.h"
#include "tests/support/captures_of.h"

namespace asof::test {
namespace {

std::vector<StreamExtent> some_streams(std::mt19937_64& random) {
  std::vector<StreamExtent> streams(random() % 6);
  for (StreamExtent& s : streams) {
    s.begin = random() % 3 == 0 ? random() % 1000 : 0;
    s.end = s.begin + (random() % 4 == 0 ? 0 : random() % 5000);
  }
  return streams;
}

TEST(Shards, RangesCoverEveryStreamOnce) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 2000; ++round) {
    const std::vector<StreamExtent> streams = some_streams(random);
    const auto count = static_cast<uint32_t>(1 + random() % 40);
    std::vector<uint64_t> at(streams.size(), 0);
    uint64_t total = 0, largest = 0;
    for (const StreamExtent& s : streams) total += s.end - s.begin;
    for (uint32_t k = 0; k < count; ++k) {
      uint64_t bytes = 0;
      for (const StreamRange& r : shard_ranges(streams, Shard{k, count})) {
        EXPECT_EQ(r.begin, at[r.stream]) << round;
        EXPECT_GT(r.end, r.begin) << round;
        at[r.stream] = r.end;
        const StreamExtent& s = streams[r.stream];
        bytes += std::min(r.end, s.end) - std::max(r.begin, s.begin);
      }
      largest = std::max(largest, bytes);
    }
    for (const uint64_t end : at) EXPECT_EQ(end, UINT64_MAX) << round;
    EXPECT_LE(largest, total / count + 1) << round;
    if (HasFailure()) return;
  }
}

TEST(Shards, ThatFollowEachOtherAreOneRangeOfEachStream) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 2000; ++round) {
    const std::vector<StreamExtent> streams = some_streams(random);
    const auto count = static_cast<uint32_t>(1 + random() % 40),
               first = static_cast<uint32_t>(random() % count);
    const auto last = static_cast<uint32_t>(first + random() % (count - first));
    std::map<size_t, StreamRange> joined;
    for (uint32_t k = first; k <= last; ++k) {
      for (const StreamRange& r : shard_ranges(streams, Shard{k, count}))
        joined.try_emplace(r.stream, r).first->second.end = r.end;
    }
    std::vector<StreamRange> want;
    for (const auto& [stream, range] : joined) want.push_back(range);
    ASSERT_EQ(shard_ranges(streams, Shards{first, last, count}), want) << round;
  }
}

struct Trace {
  Capture capture;
  std::list<std::vector<uint8_t>> bytes;
};

constexpr std::array<uint8_t, 16> kPsb = {2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82,
                                          2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82};
constexpr std::array<uint8_t, 12> kAsync = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80};

// All but about one of forty: so few that the next is far away.
void remove_sync_points(std::vector<uint8_t>& bytes, std::mt19937_64& random) {
  const auto remove = [&](std::span<const uint8_t> sync) {
    for (auto at = bytes.begin();
         (at = std::search(at, bytes.end(), sync.begin(), sync.end())) != bytes.end(); ++at) {
      if (random() % 40 != 0) *(at + static_cast<ptrdiff_t>(sync.size()) - 1) = 0x11;
    }
  };
  remove(kPsb);
  remove(kAsync);
}

// What sync points consist of, for so long that a search can begin in it.
void insert_run(std::vector<uint8_t>& bytes, std::mt19937_64& random) {
  std::vector<uint8_t> run(random() % 90000, 0);
  if (random() % 2 == 0) {
    for (size_t i = 0; i < run.size(); ++i) run[i] = i % 2 == 0 ? 2 : 0x82;
  }
  run.push_back(0x80);
  bytes.insert(bytes.begin() + static_cast<ptrdiff_t>(random() % bytes.size()), run.begin(), run.end());
}

// The capture's trace as pieces that follow each other: copies of it, some damaged, some with trace missing in front,
// zeros (as of a buffer that was not filled) and sync points side by side.
Trace long_trace(const std::string& demo, std::mt19937_64& random) {
  CaptureOptions options;
  options.symfs = std::string(ASOF_TEST_DATA) + "/demo/symfs";
  Trace t{*open_capture(std::string(ASOF_TEST_DATA) + "/" + demo + "/perf.data", options), {}};
  for (Stream& s : t.capture.streams) {
    std::vector<uint8_t> scratch;
    const auto whole = s.bytes(s.begin(), s.begin() + s.pieces.front().size(), scratch);
    const std::vector<uint8_t> once(whole.begin(), whole.end());
    const StreamPiece first = s.pieces.front();
    s.pieces.clear();
    s.losses.clear();
    uint64_t at = 0;
    while (at < (700U << 10)) {
      std::vector<uint8_t>& piece = t.bytes.emplace_back(once);
      for (uint64_t k = random() % 4; k > 1; --k)
        piece[random() % piece.size()] ^= static_cast<uint8_t>(1 + random() % 255);
      if (random() % 2 == 0) remove_sync_points(piece, random);
      if (random() % 4 == 0) insert_run(piece, random);
      if (random() % 6 == 0)
        piece.insert(piece.end(), piece.begin(), piece.begin() + static_cast<ptrdiff_t>(piece.size() / 2));
      if (random() % 5 == 0) piece.insert(piece.end(), once.begin(), once.begin() + 16);
      StreamPiece p = first;
      p.source.reset();
      p.source_size = 0;
      p.mapped = false;
      if (random() % 3 == 0) at += random() % 1000;
      p.offset = at;
      p.discontinuity = random() % 4 == 0;
      p.bytes = piece;
      if (p.discontinuity) s.losses.push_back({at, std::nullopt, kTimeMin, kTimeMax, Code::kAuxFull, "full"});
      at += piece.size();
      s.pieces.push_back(p);
    }
  }
  return t;
}

std::string show(const Segment& s) {
  std::string text;
  for (const uint64_t n : {s.stream, s.index, s.begin, s.end, s.tail_end, uint64_t{s.overwritten}})
    text += std::to_string(n) + " ";
  text += std::to_string(s.start_time);
  if (s.before)
    text += " gap " + std::to_string(s.before->begin) + "-" + std::to_string(s.before->end) + " " +
            std::string(code_text(s.before->code)) + " " + s.before->reason + " " +
            std::to_string(s.before->time.lo);
  return text;
}

TEST(Shards, SegmentsFromAnyOffsetAreThoseOfTheWholeStream) {
  std::mt19937_64 random(7);
  uint64_t late = 0;
  for (uint64_t round = 0; round < captures_of(4); ++round) {
    for (const std::string demo : {"demo", "demo-arm64"}) {
      const Trace t = long_trace(demo, random);
      const auto arch = t.capture.arch();
      ASSERT_TRUE(arch);
      for (size_t i = 0; i < t.capture.streams.size(); ++i) {
        const Stream& stream = t.capture.streams[i];
        const std::vector<Segment> all = (*arch)->split(stream, i);
        for (int k = 0; k < 40; ++k) {
          uint64_t from = stream.begin() + random() % (stream.end() - stream.begin());
          if (!all.empty() && k % 4 == 0) from = all[random() % all.size()].begin;
          const auto source = (*arch)->segments(stream, i, from);
          auto want = std::ranges::find_if(all, [&](const Segment& s) { return s.begin >= from; });
          late += from > (64 << 10) && want != all.end();
          for (int n = 0; n < 30; ++n, ++want) {
            const auto got = source->next();
            ASSERT_EQ(got.has_value(), want != all.end()) << demo << " " << round << " from " << from;
            if (!got) break;
            ASSERT_EQ(show(*got), show(*want)) << demo << " " << round << " from " << from;
          }
        }
      }
    }
  }
  EXPECT_GT(late, 100U);
}

}  // namespace
}  // namespace asof::test
