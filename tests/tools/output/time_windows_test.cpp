// Parts of the time: what is said of them adds up to what is said of the whole.
#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

#include "decoder/pipeline/pipeline.h"
#include "tests/support/sim_random.h"
#include "tests/tools/recordings.h"
#include "tools/output/chunk_window.h"
#include "tools/output/coverage.h"

namespace asof::test {
namespace {

using GapKey = std::tuple<size_t, uint64_t, uint64_t, Time, Time, Code>;

class Covered final : public ChunkConsumer {
 public:
  Covered(const Capture& capture, const TimeBounds& time) : coverage(capture, {.time = time}), time_(time) {}
  void deliver(Chunk& chunk, const Stream& /*stream*/, Prepared* /*prepared*/) override {
    coverage.add(chunk, chunk.steps.size());
    for (const Step& s : chunk.steps) seen(s.time);
    for (const Gap& g : chunk.gaps) {
      if (is_within(g, time_)) gaps.emplace(chunk.stream, g.begin, g.end, g.time.lo, g.time.hi, g.code);
    }
  }

  Coverage coverage;
  std::set<GapKey> gaps;
  Time first = kTimeMax, last = kTimeMin;

 private:
  void seen(Time t) {
    if (t == kTimeMin) return;
    first = std::min(first, t);
    last = std::max(last, t);
  }

  const TimeBounds time_;
};

class TimeWindows : public RecordingTest {
 protected:
  static void decode(const Capture& capture, const TimeBounds& time, Covered& to) {
    ASSERT_TRUE(run_pipeline(capture, {.time = time}, ChunkOrder::kByStream, to));
  }
  // Windows that share their ends, of random lengths, from before the first instruction until after the last one.
  static void check(const Capture& capture) {
    Covered whole(capture, {});
    decode(capture, {}, whole);
    if (whole.first >= whole.last) GTEST_SKIP() << "no time";
    SimRandom random(7);
    std::vector<Time> cuts = {kTimeMin, kTimeMax};
    for (int i = 0; i < 24; ++i)
      cuts.push_back(whole.first +
                     static_cast<Time>(random.below(static_cast<uint64_t>(whole.last - whole.first))));
    for (const GapKey& g : whole.gaps) {
      if (cuts.size() > 40) break;
      const auto [lo, hi] = std::pair(std::get<3>(g), std::get<4>(g));
      if (lo > kTimeMin && hi < kTimeMax && hi > lo) cuts.push_back(lo + (hi - lo) / 2);
    }
    std::ranges::sort(cuts);
    uint64_t traced = 0, lost = 0;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      const TimeBounds time{cuts[i], cuts[i + 1]};
      Covered part(capture, time);
      decode(capture, time, part);
      traced += part.coverage.traced_ns();
      lost += part.coverage.lost_ns();
      std::set<GapKey> wanted;
      for (const GapKey& g : whole.gaps) {
        if (std::get<4>(g) >= time.lo && std::get<3>(g) <= time.hi) wanted.insert(g);
      }
      EXPECT_EQ(part.gaps, wanted) << time.lo << " to " << time.hi;
      EXPECT_EQ(part.coverage.gaps(), wanted.size());
    }
    EXPECT_EQ(traced, whole.coverage.traced_ns());
    EXPECT_EQ(lost, whole.coverage.lost_ns());
  }
};

TEST_P(TimeWindows, AddUpToTheWhole) {
  const auto capture = open();
  ASSERT_TRUE(capture);
  check(*capture);
}

TEST_P(TimeWindows, OfTheBlockStreamToo) {
  const auto capture = open();
  ASSERT_TRUE(capture);
  const std::string blocks = (dir_.path() / "blocks").string();
  write_blocks(*capture, blocks);
  const auto stream = open_capture(blocks, {});
  ASSERT_TRUE(stream);
  check(*stream);
}

INSTANTIATE_TEST_SUITE_P(Captures, TimeWindows, kRecordings, RecordingTest::name);

}  // namespace
}  // namespace asof::test
