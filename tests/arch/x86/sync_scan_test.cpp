// SyncScan: the sync points of a stream, whatever parts it is searched in, by whichever threads.
#include "arch/x86/sync_scan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "arch/x86/config.h"
#include "arch/x86/errata.h"
#include "arch/x86/packet.h"
#include "tests/support/sim_random.h"

namespace asof::x86 {
namespace {

using Bytes = std::vector<uint8_t>;
using asof::test::SimRandom;

const Bytes& psb() {
  static const Bytes bytes = [] {
    Bytes b;
    for (size_t i = 0; i < kPsbSize; ++i) b.push_back(i % 2 == 0 ? 2 : 0x82);
    return b;
  }();
  return bytes;
}
constexpr uint8_t kPsbend[] = {2, 0x23};

// Bytes of a stream, in pieces, some of them with trace missing in front.
struct Scanned {
  Bytes bytes;
  Stream stream;
  std::vector<Stretch> stretches;
  Config config;
  Errata errata;

  void cut(const std::vector<std::pair<size_t, bool>>& ends) {  // of pieces; a hole behind it
    size_t begin = 0;
    uint64_t offset = 0;
    bool hole = true;
    for (const auto& [end, hole_behind] : ends) {
      StreamPiece& piece = stream.pieces.emplace_back();
      piece.offset = offset;
      piece.bytes = std::span(bytes).subspan(begin, end - begin);
      piece.discontinuity = hole;
      const size_t i = stream.pieces.size() - 1;
      if (hole) stretches.push_back({i, i, offset, offset});
      stretches.back().last_piece = i;
      stretches.back().end = offset + piece.bytes.size();
      offset += piece.bytes.size() + (hole_behind ? 7 : 0);
      hole = hole_behind;
      begin = end;
    }
  }
  // What is in the bytes of a stretch: PSBs one behind the other.
  std::vector<uint64_t> expected() const {
    std::vector<uint64_t> out;
    for (const Stretch& s : stretches) {
      std::vector<uint8_t> scratch;
      const auto all = stream.bytes(s.begin, s.end, scratch);
      auto from = all.begin();
      for (;;) {
        const auto hit = std::search(from, all.end(), psb().begin(), psb().end());
        if (hit == all.end()) break;
        out.push_back(s.begin + static_cast<uint64_t>(hit - all.begin()));
        from = hit + kPsbSize;
      }
    }
    return out;
  }
  std::vector<uint64_t> taken(SyncScan& scan) const {
    std::vector<uint64_t> out;
    for (const Stretch& s : stretches) {
      scan.enter(s);
      while (const auto point = scan.next()) out.push_back(point->at);
    }
    return out;
  }
};

// PSBs, runs of their bytes, zeros, other bytes.
Bytes random_bytes(SimRandom& random, size_t size) {
  Bytes bytes;
  while (bytes.size() < size) {
    switch (random.below(5)) {
      case 0:
        bytes.insert(bytes.end(), psb().begin(), psb().end());
        bytes.insert(bytes.end(), std::begin(kPsbend), std::end(kPsbend));
        break;
      case 1:
        for (size_t i = random.below(2), end = i + random.below(200); i < end; ++i)
          bytes.push_back(psb()[i % 2]);
        break;
      case 2:
        bytes.insert(bytes.end(), random.below(300), 0);
        break;
      default:
        for (size_t n = random.below(120); n != 0; --n)
          bytes.push_back(static_cast<uint8_t>(random.below(256)));
    }
  }
  return bytes;
}

Scanned random_stream(uint64_t seed) {
  SimRandom random(seed);
  Scanned s;
  s.bytes = random_bytes(random, 4000);
  std::vector<std::pair<size_t, bool>> ends;
  for (size_t end = 0; end < s.bytes.size();) {
    // Mostly with a PSB across the seam, now and then empty.
    end = std::min(s.bytes.size(), end + random.below(seed % 3 == 0 ? 40 : 1500));
    ends.emplace_back(end, random.below(4) == 0);
  }
  s.cut(ends);
  return s;
}

TEST(SyncScan, FindsAllPsbsWhateverTheParts) {
  size_t found = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const Scanned s = random_stream(seed);
    const auto expected = s.expected();
    found += expected.size();
    for (const uint64_t part : {UINT64_MAX, uint64_t{1000}, uint64_t{64}, uint64_t{17}, uint64_t{1}}) {
      for (const size_t ahead : {0, 1, 5, 10000}) {
        SyncScan scan(s.stream, s.stretches, s.config, s.errata, part);
        while (scan.scan_ahead(ahead)) {
        }
        ASSERT_EQ(s.taken(scan), expected) << "seed " << seed << " part " << part << " ahead " << ahead;
      }
    }
  }
  EXPECT_GT(found, 300U);
}

TEST(SyncScan, PartsMayBeFoundInBetween) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const Scanned s = random_stream(3 * seed + 1);
    SimRandom random(seed);
    SyncScan scan(s.stream, s.stretches, s.config, s.errata, 50);
    std::vector<uint64_t> out;
    for (const Stretch& stretch : s.stretches) {
      scan.enter(stretch);
      for (;;) {
        for (size_t n = random.below(4); n != 0; --n) scan.scan_ahead(8);
        const auto point = scan.next();
        if (!point) break;
        out.push_back(point->at);
      }
    }
    ASSERT_EQ(out, s.expected()) << "seed " << seed;
  }
}

TEST(SyncScan, ThreadsScanAheadOfTheOneThatTakes) {
  Scanned s;
  SimRandom random(7);
  s.bytes = random_bytes(random, 400'000);
  s.cut({{100'000, false}, {150'000, true}, {400'000, false}});
  const auto expected = s.expected();
  SyncScan scan(s.stream, s.stretches, s.config, s.errata, 500);
  std::vector<std::thread> threads;
  std::atomic<size_t> parts = 0;
  std::atomic<bool> done = false;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!done) parts += scan.scan_ahead(16) ? 1 : 0;
    });
  }
  while (parts == 0) std::this_thread::yield();
  EXPECT_EQ(s.taken(scan), expected);
  done = true;
  for (std::thread& t : threads) t.join();
}

TEST(SyncScan, SoManyPartsWaitAtTheMost) {
  Scanned s;
  SimRandom random(9);
  s.bytes = random_bytes(random, 100'000);
  s.cut({{100'000, false}});
  SyncScan scan(s.stream, s.stretches, s.config, s.errata, 1000);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(scan.scan_ahead(3));
  EXPECT_FALSE(scan.scan_ahead(3));
  scan.enter(s.stretches[0]);
  ASSERT_TRUE(scan.next());  // of the first part
  EXPECT_TRUE(scan.scan_ahead(3));
  EXPECT_FALSE(scan.scan_ahead(3));
  size_t more = 0;
  while (scan.scan_ahead(SIZE_MAX)) ++more;
  EXPECT_GE(more, 100U - 4);  // all of them, once
  EXPECT_LE(more, 101U - 4);
}

// Of a part with more points than are kept the rest is searched later.
TEST(SyncScan, ManyPointsInAPart) {
  Scanned s;
  constexpr size_t kPoints = 3 * SyncScan::kMostPoints + 5;
  for (size_t i = 0; i < kPoints; ++i) {
    s.bytes.insert(s.bytes.end(), psb().begin(), psb().end());
    s.bytes.insert(s.bytes.end(), std::begin(kPsbend), std::end(kPsbend));
  }
  s.cut({{s.bytes.size(), false}});
  for (const size_t ahead : {0, 10}) {
    SyncScan scan(s.stream, s.stretches, s.config, s.errata);
    while (scan.scan_ahead(ahead)) {
    }
    std::vector<uint64_t> out = s.taken(scan);
    ASSERT_EQ(out.size(), kPoints);
    for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], 18 * i);
  }
}

// A group may go on behind its part and into the next piece, not behind its stretch.
TEST(SyncScan, GroupsAreReadToTheirEnds) {
  Scanned s;
  s.bytes = psb();
  for (const int b : {0x19, 1, 2, 3, 4, 5, 6, 7, 2, 0x23, 0x99})
    s.bytes.push_back(static_cast<uint8_t>(b));  // TSC, PSBEND
  s.cut({{20, false}, {s.bytes.size(), false}});
  SyncScan whole(s.stream, s.stretches, s.config, s.errata, 18);
  while (whole.scan_ahead(10)) {
  }
  whole.enter(s.stretches[0]);
  auto point = whole.next();
  ASSERT_TRUE(point);
  EXPECT_FALSE(point->group.bad);
  EXPECT_EQ(point->group.size, 26U);
  EXPECT_FALSE(whole.next());

  Scanned cut = s;
  cut.stream = {};
  cut.stretches.clear();
  cut.cut({{20, true}, {cut.bytes.size(), false}});
  SyncScan part(cut.stream, cut.stretches, cut.config, cut.errata);
  part.enter(cut.stretches[0]);
  point = part.next();
  ASSERT_TRUE(point);
  EXPECT_TRUE(point->group.bad);
  EXPECT_EQ(point->group.size, 16U);
}

TEST(SyncScan, OfNoTraceThereIsNothing) {
  Scanned s;
  SyncScan none(s.stream, s.stretches, s.config, s.errata);
  EXPECT_FALSE(none.scan_ahead(10));
  s.cut({{0, true}, {0, false}});
  SyncScan empty(s.stream, s.stretches, s.config, s.errata);
  EXPECT_FALSE(empty.scan_ahead(10));
  EXPECT_TRUE(s.taken(empty).empty());
}

}  // namespace
}  // namespace asof::x86
