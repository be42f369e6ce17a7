// Context switches described by samples of sched:sched_switch.
#include <gtest/gtest.h>

#include "tests/decoder/capture_test_util.h"

namespace asof {
namespace {

using namespace test;

const std::string kFormat =
    "name: sched_switch\nID: 316\nformat:\n"
    "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
    "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
    "\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n"
    "\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n"
    "\tfield:int prev_prio;\toffset:28;\tsize:4;\tsigned:1;\n"
    "\tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n"
    "\tfield:char next_comm[16];\toffset:40;\tsize:16;\tsigned:0;\n"
    "\tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;\n"
    "\tfield:int next_prio;\toffset:60;\tsize:4;\tsigned:1;\n\nprint fmt: \"prev_comm=%s\"\n";

// Tracing data of one system with one event (tools/perf/util/trace-event-info.c).
Bytes tracing_data_of(const std::string& format) {
  ByteSink b;
  const auto name = [&](const std::string& text) { b.text(text), b.u8(0); };
  const auto piece = [&](const std::string& text) { b.u64(text.size()), b.text(text); };
  b.text("\x17\x08\x44tracing");
  name("0.6");
  b.u8(0), b.u8(8), b.u32(4096);  // little-endian, size of long, page size
  name("header_page"), piece("");
  name("header_event"), piece("");
  b.u32(0);  // formats of ftrace itself
  b.u32(1), name("sched"), b.u32(1), piece(format);
  return std::move(b).take();
}

class Sampled : public ::testing::Test {
 protected:
  Sampled() {
    attr = r.writer.add_attr(
        {.type = 2,
         .config = 316,
         .sample_type = sample::kIdentifier | sample::kTid | sample::kTime | sample::kCpu | (1U << 10U),
         .ids = {5, 6},
         .name = "sched:sched_switch"});
  }
  void switched(uint64_t time, int32_t prev, int32_t next, uint64_t state = 0) {
    ByteSink raw;
    raw.zeros(24), raw.u32(static_cast<uint32_t>(prev)), raw.zeros(4), raw.u64(state), raw.zeros(16),
        raw.u32(static_cast<uint32_t>(next)), raw.zeros(4);
    ByteSink b;  // IDENTIFIER, TID, TIME, CPU, RAW
    b.u64(5), b.u32(static_cast<uint32_t>(prev)), b.u32(static_cast<uint32_t>(prev)), b.u64(time), b.u32(0),
        b.u32(0);
    b.u32(static_cast<uint32_t>(raw.size())), b.raw(raw.bytes());
    b.align(8);
    r.writer.record(9, 1, b.bytes());
  }
  void tracing_data() { r.writer.feature(1, tracing_data_of(kFormat)); }
  Recording r;
  size_t attr = 0;
};

// States as Linux 6.12 and 4.9 write them: R, S, R+, R+, D.
TEST_F(Sampled, PreemptedTasksWereNeitherAsleepNorDead) {
  tracing_data();
  const std::array<uint64_t, 5> states{0, 1, 0x100, 0x1000, 2};
  for (size_t i = 0; i < states.size(); ++i)
    switched(1000 * (i + 1), static_cast<int32_t>(100 + i), static_cast<int32_t>(101 + i), states[i]);
  auto c = r.open();
  ASSERT_TRUE(c.has_value());
  std::vector<bool> preempts;
  for (size_t i = 0; i < states.size(); ++i)
    preempts.push_back(c->streams.at(0).context_at(static_cast<Time>(1000 * (i + 1)))->preempts);
  EXPECT_EQ(preempts, (std::vector<bool>{true, false, true, true, false}));
}

TEST_F(Sampled, SamplesAreTheContextSwitches) {
  tracing_data();
  r.writer.comm(100, 100, "a", false, {});
  r.writer.comm(200, 201, "b", false, {});
  switched(1000, 100, 201);
  switched(2000, 201, 0);
  switched(3000, 0, 100);
  auto c = r.open();
  ASSERT_TRUE(c.has_value());
  const Stream& s = c->streams.at(0);
  ASSERT_NE(s.context_at(500), nullptr);
  EXPECT_EQ(s.context_at(500)->tid, 100) << "the first switch also names who ran before it";
  EXPECT_EQ(s.context_at(1500)->tid, 201);
  EXPECT_EQ(s.context_at(1500)->pid, 200);
  EXPECT_EQ(s.context_at(2500)->tid, 0);
  EXPECT_EQ(s.context_at(2500)->pid, 0);
  EXPECT_EQ(s.context_at(3500)->pid, 100);
}

TEST_F(Sampled, SwitchRecordsOutrankThem) {
  tracing_data();
  switched(1000, 100, 300);
  r.writer.context_switch_cpu_wide(true, false, 201, 201, Recording::at(1100, 0, 100, 100));
  auto c = r.open();
  ASSERT_TRUE(c.has_value());
  EXPECT_EQ(c->streams.at(0).context_at(1050)->tid, 100);
  EXPECT_EQ(c->streams.at(0).context_at(1500)->tid, 201);
}

TEST_F(Sampled, FormatOfAnotherKernelHasTheFieldsElsewhere) {
  std::string moved = kFormat;  // both fields are swapped
  moved.replace(moved.find("offset:24"), 9, "offset:99");
  moved.replace(moved.find("offset:56"), 9, "offset:24");
  moved.replace(moved.find("offset:99"), 9, "offset:56");
  r.writer.feature(1, tracing_data_of(moved));
  switched(1000, 100, 201);
  auto c = r.open();
  ASSERT_TRUE(c.has_value());
  EXPECT_EQ(c->streams.at(0).context_at(1500)->tid, 100);
}

TEST_F(Sampled, SamplesTooShortAreReported) {
  std::string far = kFormat;
  far.replace(far.find("offset:56"), 9, "offset:96");
  r.writer.feature(1, tracing_data_of(far));
  switched(1000, 100, 201);
  auto c = r.open();
  ASSERT_TRUE(c.has_value());
  EXPECT_NE(find_notice(*c, Code::kBadSideBandRecord), nullptr);
  EXPECT_TRUE(c->streams.at(0).contexts.empty());
}

TEST_F(Sampled, WithoutAFormatTheyTellNothing) {
  switched(1000, 100, 300);
  auto c = r.open();
  ASSERT_TRUE(c.has_value());
  EXPECT_TRUE(c->streams.at(0).contexts.empty());
}

}  // namespace
}  // namespace asof
