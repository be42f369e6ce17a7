// Calls as they end, and the whole timeline: the same calls, and every instruction in one of them.
#include <algorithm>
#include <map>
#include <thread>

#include "api_test.h"

namespace asof_test {
namespace {

uint64_t instructions(const asof::Capture& capture) {
  uint64_t n = 0;
  for (const asof::Block& b : capture.blocks()) n += b.count;
  return n;
}

TEST(Calls, EveryInstructionIsInOne) {
  for (const Input& input : {demo(), demo_arm64()}) {
    const asof::Capture capture = open(input);
    uint64_t own = 0;
    for (const asof::Call& c : capture.calls()) own += c.self_instructions;
    EXPECT_EQ(own, instructions(capture));
    EXPECT_EQ(capture.timeline().instructions(), own);
  }
}

TEST(Calls, ChildrenComeBeforeTheirParents) {
  const asof::Capture capture = open(demo());
  std::map<uint64_t, uint64_t> of_children;  // instructions, by parent
  size_t nested = 0;
  for (const asof::Call& c : capture.calls()) {
    EXPECT_LE(c.begin, c.end);
    EXPECT_FALSE(c.function.empty());
    EXPECT_EQ(c.instructions, c.self_instructions + of_children[c.id]) << c.function;
    if (c.parent == 0) continue;
    of_children[c.parent] += c.instructions;
    ++nested;
  }
  EXPECT_GT(nested, 100U);
}

TEST(Calls, TheTimelineHasTheSame) {
  const asof::Capture capture = open(demo());
  for (const asof::Tracks tracks : {asof::Tracks::kCpu, asof::Tracks::kThread}) {
    const asof::Timeline timeline = capture.timeline({.tracks = tracks});
    std::map<uint64_t, asof::Call> by_id;
    for (const asof::Call& c : timeline.calls()) by_id[c.id] = c;
    EXPECT_EQ(timeline.folded(), 0U);
    size_t n = 0;
    for (const asof::Call& c : capture.calls({.tracks = tracks})) {
      ASSERT_TRUE(by_id.contains(c.id));
      const asof::Call& same = by_id[c.id];
      EXPECT_EQ(c.function, same.function);
      EXPECT_EQ(c.begin, same.begin);
      EXPECT_EQ(c.end, same.end);
      EXPECT_EQ(c.tid, same.tid);
      ++n;
    }
    EXPECT_EQ(n, by_id.size());
  }
}

TEST(Calls, TheNumberOfJobsChangesNothing) {
  const asof::Capture capture = open(demo());
  const auto all = [&](unsigned jobs) {
    std::vector<std::tuple<uint64_t, std::string, asof::Time, asof::Time>> out;
    for (const asof::Call& c : capture.calls({.filter = {.jobs = jobs}}))
      out.emplace_back(c.id, c.function, c.begin, c.end);
    return out;
  };
  EXPECT_EQ(all(1), all(4));
}

TEST(Timeline, KnowsWhoRanWhichText) {
  const asof::Timeline timeline = open(demo()).timeline();  // outlives the capture
  ASSERT_EQ(timeline.changes().size(), 10U);
  size_t visits = 0;
  for (const asof::ChangeSlice& c : timeline.changes()) {
    EXPECT_FALSE(c.symbol.empty());
    visits += c.visits.size();
  }
  EXPECT_GT(visits, 10U);
  EXPECT_FALSE(timeline.runs().empty());
  EXPECT_TRUE(std::ranges::any_of(timeline.lifetimes(), [](const asof::TextLifetime& l) {
    return l.kind == asof::TextLifetime::Kind::kBpf && l.bpf_id != 0;
  }));
  EXPECT_TRUE(std::ranges::any_of(timeline.calls(), [](const asof::Call& c) { return c.versions > 1; }));
}

TEST(Timeline, FoldsWhatIsTooMuch) {
  const asof::Capture capture = open(demo());
  const asof::Timeline all = capture.timeline(), some = capture.timeline({.max_calls = 50});
  EXPECT_LE(some.calls().size(), 50U);
  EXPECT_EQ(some.calls().size() + some.folded(), all.calls().size());
}

}  // namespace
}  // namespace asof_test
