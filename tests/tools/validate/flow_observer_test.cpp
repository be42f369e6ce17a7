// FlowObserver finds where the kernel writes side-band records: not every visit to
// perf_event_switch_output(), only those in which perf_output_end() is called.
#include <gtest/gtest.h>

#include <deque>

#include "decoder/sideband/sideband.h"
#include "textstore/builder.h"
#include "tools/validate/validation.h"

namespace asof {
namespace {

constexpr Addr kWriter = 0xffffffff81001000, kEnd = 0xffffffff81002000, kElse = 0xffffffff81003000;
constexpr Addr kSize = 0x100;

// The steps of one CPU in one chunk.
class Flow {
 public:
  Flow() {
    for (const auto& [at, name] : {std::pair{kWriter, "perf_event_switch_output"},
                                   std::pair{kEnd, "perf_output_end"}, std::pair{kElse, "perf_iterate_sb"}})
      capture_.symbols.add({.range = range_of(at, kSize), .name = name, .dso = "[kernel.kallsyms]"});
    capture_.symbols.finish();
    capture_.text.emplace(Builder().build());
  }
  Flow& at(Addr ip, Time time) {
    Block& b = blocks_.emplace_back();
    b.ip = ip;
    b.space = kKernelSpace;
    b.count = 1;
    Step s;
    s.block = &b;
    s.count = 1;
    s.time = time;
    chunk_.steps.push_back(s);
    return *this;
  }
  Flow& gap() {
    Gap g;
    g.step = static_cast<uint32_t>(chunk_.steps.size());
    chunk_.gaps.push_back(g);
    return *this;
  }
  std::vector<AnchorVisit> visits() const {
    const LiveEvents events(capture_, SideBand{});
    Stream stream;
    stream.cpu = 1;
    FlowObserver::Prepared prepared;
    FlowObserver(capture_, events).prepare(chunk_, stream, prepared);
    return prepared.visits;
  }

 private:
  Capture capture_;
  std::deque<Block> blocks_;
  Chunk chunk_;
};

// perf_iterate_sb() calls the writer for each event; the second of three wants the record.
TEST(FlowObserver, AVisitIsOneThatWrites) {
  Flow flow;
  flow.at(kElse, 100).at(kWriter, 100).at(kWriter + 0x20, 100).at(kElse + 0x10, 110);
  flow.at(kWriter, 120).at(kWriter + 0x30, 130).at(kEnd, 140).at(kWriter + 0x40, 150).at(kElse + 0x10, 150);
  flow.at(kWriter, 160).at(kElse + 0x10, 170);
  const auto visits = flow.visits();
  ASSERT_EQ(visits.size(), 1U);
  EXPECT_EQ(visits[0].anchor, Anchor::kSwitch);
  EXPECT_EQ(visits[0].cpu, 1);
  EXPECT_EQ(visits[0].time.lo, 120);
  EXPECT_EQ(visits[0].time.hi, 150);
}

TEST(FlowObserver, TheEndOfAnotherRecordIsNoVisit) {
  Flow flow;
  flow.at(kWriter, 100).at(kElse, 110).at(kEnd, 120).at(kElse + 0x10, 130);
  EXPECT_TRUE(flow.visits().empty());
}

// After a gap it is unknown when the writer was entered.
TEST(FlowObserver, AVisitHasNoGap) {
  Flow flow;
  flow.at(kWriter, 100).gap().at(kWriter + 0x30, 200).at(kEnd, 210).at(kElse, 220);
  EXPECT_TRUE(flow.visits().empty());
}

// Without a later time the visit has no end.
TEST(FlowObserver, AVisitEndsAtALaterTime) {
  Flow flow;
  flow.at(kWriter, 100).at(kWriter + 0x30, 100).at(kEnd, 100).at(kElse, 100);
  EXPECT_TRUE(flow.visits().empty());
  flow.at(kElse, 101);
  ASSERT_EQ(flow.visits().size(), 1U);
  EXPECT_EQ(flow.visits()[0].time.hi, 101);
}

}  // namespace
}  // namespace asof
