// What a timeline says of each poke and CPU, when it last ran the old text and first the new one, against the blocks
// that ran: their bytes, and how long these were there.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "decoder/calls/timeline.h"
#include "decoder/pipeline/pipeline.h"
#include "tests/tools/recordings.h"

namespace asof::test {
namespace {

struct Times {
  Time last_old = kTimeMin, first_new = kTimeMax;
  auto operator<=>(const Times&) const = default;
};
using Visits = std::map<std::pair<uint32_t, int32_t>, Times>;  // by poke and CPU

class BlocksRan final : public ChunkConsumer {
 public:
  explicit BlocksRan(const Capture& capture) : capture_(capture), now_(capture.streams.size(), kTimeMin) {
    const auto pokes = capture.text->pokes();
    for (uint32_t i = 0; i < pokes.size(); ++i) sites_[pokes[i].addr].push_back(i);
  }
  void deliver(Chunk& chunk, const Stream& stream, Prepared* /*prepared*/) override {
    Time& now = now_[chunk.stream];
    if (now == kTimeMin) now = stream.bounds.lo;
    for (const Step& s : chunk.steps) {
      now = std::max(now, s.time);
      if (!is_kernel_address(s.block->ip)) continue;
      Addr end = s.block->ip;
      for (uint32_t i = 0; i < s.count; ++i) end += s.block->lengths[i];
      for (auto at = sites_.lower_bound(s.block->ip); at != sites_.end() && at->first < end; ++at)
        ran(at->second, *s.block, end, stream.cpu, now);
    }
  }

  Visits visits;
  std::set<uint32_t> unclear;  // pokes
  uint64_t clear = 0;

 private:
  // After how many of the site's pokes could this have run?
  void ran(const std::vector<uint32_t>& pokes, const Block& b, Addr end, int32_t cpu, Time now) {
    std::vector<size_t> possible;
    const auto all = capture_.text->pokes();
    for (size_t made = 0; made <= pokes.size(); ++made) {
      const PokeRecord& p = all[pokes[made == 0 ? 0 : made - 1]];
      const auto bytes = made == 0 ? p.old_bytes() : p.new_len != 0 ? p.new_bytes() : p.old_bytes();
      const size_t size = std::min<size_t>(bytes.size(), end - p.addr);
      if (std::memcmp(bytes.data(), b.bytes + (p.addr - b.ip), size) != 0) continue;
      const Time from = made == 0 ? kTimeMin : p.time;
      const Time until = made == pokes.size() ? kTimeMax : all[pokes[made]].time - 1;
      if (b.from >= from && b.until <= until) possible.push_back(made);
    }
    if (possible.size() != 1) {
      unclear.insert(pokes.begin(), pokes.end());
      return;
    }
    ++clear;
    const size_t made = possible[0];
    if (made != 0) {
      Times& t = visits[{pokes[made - 1], cpu}];
      t.first_new = std::min(t.first_new, now);
    }
    if (made != pokes.size()) {
      Times& t = visits[{pokes[made], cpu}];
      t.last_old = std::max(t.last_old, now);
    }
  }

  const Capture& capture_;
  std::map<Addr, std::vector<uint32_t>> sites_;
  std::vector<Time> now_;
};

class ToldVisits final : public TimelineSink {
 public:
  void poke(const PokeSlice& p) override {
    for (const PokeVisit& v : p.visits)
      visits[{static_cast<uint32_t>(p.index), v.cpu}] = {v.last_old, v.first_new};
  }
  Visits visits;
};

class PokeVisits : public RecordingTest {
 protected:
  static void check(const Capture& capture, bool& any) {
    if (capture.text->pokes().empty()) return;
    BlocksRan ran(capture);
    ASSERT_TRUE(run_pipeline(capture, {}, ChunkOrder::kByStream, ran));
    ToldVisits told;
    ASSERT_TRUE(run_timeline(capture, {}, told));
    size_t wrong = 0;
    for (const auto& [key, times] : told.visits) {
      if (ran.unclear.contains(key.first)) continue;
      const auto at = ran.visits.find(key);
      const Times want = at == ran.visits.end() ? Times() : at->second;
      if (times == want || ++wrong > 3) continue;
      ADD_FAILURE() << "poke " << key.first + 1 << " CPU " << key.second << ": " << times.last_old << " "
                    << times.first_new << ", ran " << want.last_old << " " << want.first_new;
    }
    EXPECT_EQ(wrong, 0U);
    for (const auto& [key, times] : ran.visits) {
      if (ran.unclear.contains(key.first)) continue;
      EXPECT_TRUE(told.visits.contains(key)) << key.first + 1;
      any = true;
    }
    RecordProperty("clear", static_cast<int>(ran.clear));
    RecordProperty("unclear", static_cast<int>(ran.unclear.size()));
    EXPECT_LT(ran.unclear.size(), capture.text->pokes().size() / 2 + 1);
  }
};

TEST_P(PokeVisits, AreThoseOfTheBlocksThatRan) {
  const auto capture = open();
  ASSERT_TRUE(capture) << capture.error().reason;
  bool any = false;
  check(*capture, any);
  if (!any) GTEST_SKIP() << "no text that was changed ran";
}

// Without a copy of the text from the start.
TEST_P(PokeVisits, AreThoseOfABlockStream) {
  const auto capture = open();
  ASSERT_TRUE(capture) << capture.error().reason;
  const std::string blocks = dir_.path() / "flow.blocks";
  write_blocks(*capture, blocks);
  const auto read = open_capture(blocks, {});
  ASSERT_TRUE(read) << read.error().reason;
  bool any = false;
  check(*read, any);
  if (!any) GTEST_SKIP() << "no text that was changed ran";
}

INSTANTIATE_TEST_SUITE_P(Captures, PokeVisits, kRecordings, RecordingTest::name);

}  // namespace
}  // namespace asof::test
