// Event Trace and PEBS via PT as records of `asof script`; the words of events are those of perf's
// perf_sample__fprintf_synth_evt().
#include <gtest/gtest.h>

#include "tests/support/perf_data_writer.h"
#include "tests/support/temp_dir.h"
#include "tools/script/flow_records.h"
#include "tools/script/script_event_names.h"

namespace asof::test {
namespace {

Event event(EventKind kind, Addr ip, uint64_t a, uint64_t b) {
  Event e;
  e.kind = kind;
  e.time = 1000;
  e.ip = ip;
  e.a = a;
  e.b = b;
  return e;
}

class TraceEvents : public ::testing::Test {
 protected:
  // `aux_output`: which events write their samples into the trace.
  void open(std::initializer_list<bool> aux_output) {
    constexpr uint64_t kAuxOutput = 1U << 31U;
    PerfDataWriter writer;
    uint64_t id = 1;
    for (const bool given : aux_output)
      writer.add_attr({.type = 0,
                       .sample_period = 5000,
                       .flags = attr_flag::kSampleIdAll | (given ? kAuxOutput : 0),
                       .ids = {id++},
                       .name = "cycles:ppp"});
    writer.event_desc();
    writer.write_file(dir_.path() / "perf.data");
    capture_.perf = *PerfData::open(dir_.path() / "perf.data");
    stream_.cpu = 0;
  }
  std::vector<ScriptRecord> records(std::vector<Event> events, std::string_view letters) {
    const auto itrace = parse_script_itrace(letters);
    FlowRecords flow(capture_, stream_, *itrace, false, false, nullptr);
    Chunk chunk;
    chunk.events = std::move(events);
    TimedText text;
    flow.take(chunk, text);
    std::vector<ScriptRecord> out;
    for (size_t at = 0; at < text.text.size(); at += sizeof(ScriptRecord))
      out.push_back(ScriptRecord::from(text.text, at));
    return out;
  }
  TempDir dir_;
  Capture capture_;
  Stream stream_;
};

TEST_F(TraceEvents, InterruptsHaveTheirDataAndVector) {
  open({});
  const std::vector<Event> events{event(EventKind::kEvd, 0, 0, 0x1234), event(EventKind::kEvd, 0, 9, 0),
                                  event(EventKind::kCfe, 0x401000, 1, 32), event(EventKind::kCfe, 0, 30, 0)};
  const auto all = records(events, "I");
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(script_event_name(all[0].kind), "evt");
  EXPECT_EQ(all[0].ip, 0x401000U);
  EXPECT_EQ(synth_text(capture_, all[0]), " cfe: INTR IP: 1 vector: 32 PFA: 0x1234 EVD_9: 0");
  EXPECT_EQ(synth_text(capture_, all[1]), " cfe: 30 IP: 0 vector: 0");
  EXPECT_TRUE(records(events, "bp").empty());
}

TEST_F(TraceEvents, BlocksOfPebsAreSamplesOfTheirEvent) {
  const std::vector<Event> block{
      event(EventKind::kBbp, 0, 4, 0),       event(EventKind::kBip, 0, 0x401020, 0),
      event(EventKind::kBip, 0, 2, 1),       event(EventKind::kBbp, 0, 5, 0),
      event(EventKind::kBip, 0, 0xabc, 0),   event(EventKind::kBip, 0, 77, 2),
      event(EventKind::kBep, 0x401000, 0, 0)};
  open({false, true});
  const auto all = records(block, "o");
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].kind, ScriptRecord::Kind::kPebs);
  EXPECT_EQ(all[0].a, 1U);
  EXPECT_EQ(all[0].ip, 0x401020U);
  EXPECT_EQ(all[0].addr, 0xabcU);
  EXPECT_EQ(all[0].b, 77U);
  EXPECT_EQ(all[0].period, 5000U);
  EXPECT_TRUE(records(block, "b").empty());
  // The address of its FUP where it says none; nothing of a block whose beginning is lost, or that is of no event.
  const std::vector<Event> bare{event(EventKind::kBep, 1, 0, 0), event(EventKind::kBbp, 0, 4, 0),
                                event(EventKind::kBep, 0x401000, 0, 0)};
  const auto few = records(bare, "o");
  ASSERT_EQ(few.size(), 1U);
  EXPECT_EQ(few[0].ip, 0x401000U);
  open({false, false});
  EXPECT_TRUE(records(block, "o").empty());
}

// perf shows a sync point, and the ratio where it is another than before.
TEST_F(TraceEvents, RatiosOfSyncPoints) {
  open({});
  std::string kinds;
  for (const ScriptRecord& r : records({event(EventKind::kPsb, 0, 24, 0), event(EventKind::kCbr, 0, 24, 0),
                                        event(EventKind::kCbr, 0, 30, 0), event(EventKind::kPsb, 0, 30, 0),
                                        event(EventKind::kPsb, 0, 0, 0)},
                                       "p"))
    kinds += std::string(script_event_name(r.kind)) + " ";
  EXPECT_EQ(kinds, "psb cbr cbr psb psb ");
}

}  // namespace
}  // namespace asof::test
