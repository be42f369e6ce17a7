// Scheduling and the machine in a Perfetto trace, read back with protozero: what no record tells is nobody's.
#include <gtest/gtest.h>

#include <protozero/pbf_reader.hpp>

#include "tools/timeline/perfetto_sched.h"

namespace asof::test {
namespace {

using protozero::pbf_reader;

struct Switch {
  uint32_t cpu = 0;
  uint64_t time = 0;
  int32_t from = -1, to = -1;
  int64_t state = -1;
  std::string from_name, to_name;
};

std::string written(const std::function<void(PerfettoPackets&)>& fill) {
  std::string bytes;
  const std::function<void(std::string_view)> append = [&](std::string_view piece) { bytes += piece; };
  PerfettoPackets out(append);
  fill(out);
  out.finish();
  return bytes;
}

Switch read_switch(pbf_reader event, uint32_t cpu) {
  Switch s;
  s.cpu = cpu;
  while (event.next()) {
    if (event.tag() == 1) {
      s.time = event.get_uint64();
    } else if (event.tag() == 4) {
      pbf_reader change = event.get_message();
      while (change.next()) {
        switch (change.tag()) {
          case 1:
            s.from_name = change.get_string();
            break;
          case 2:
            s.from = change.get_int32();
            break;
          case 4:
            s.state = change.get_int64();
            break;
          case 5:
            s.to_name = change.get_string();
            break;
          case 6:
            s.to = change.get_int32();
            break;
          default:
            change.skip();
        }
      }
    } else {
      event.skip();
    }
  }
  return s;
}

std::vector<Switch> switches(const std::string& trace) {
  std::vector<Switch> out;
  pbf_reader packets(trace);
  while (packets.next(1)) {
    pbf_reader packet = packets.get_message();
    while (packet.next(1)) {
      pbf_reader bundle = packet.get_message();
      uint32_t cpu = 0;
      while (bundle.next()) {
        if (bundle.tag() == 1) {
          cpu = bundle.get_uint32();
        } else if (bundle.tag() == 2) {
          out.push_back(read_switch(bundle.get_message(), cpu));
        } else {
          bundle.skip();
        }
      }
    }
  }
  return out;
}

RunSlice run(int32_t cpu, int32_t tid, Time begin, Time end) {
  return {.cpu = cpu, .pid = tid, .tid = tid, .comm = "task", .begin = begin, .end = end};
}

TEST(PerfettoSched, WhatNoRecordTellsIsNobodys) {
  Timeline t;
  t.summary.end = 900;
  t.runs = {run(0, 7, 100, 200), run(0, 0, 200, 300), run(0, 8, 500, 600), run(3, 9, 100, 900)};
  const auto all = switches(written([&](PerfettoPackets& out) { write_sched(t, "6.12.3", out); }));
  ASSERT_EQ(all.size(), 6u);
  constexpr int32_t kPidLimit = 1 << 22;  // PID_MAX_LIMIT of Linux
  EXPECT_GE(all[0].from, kPidLimit) << "what ran before is not known";
  EXPECT_EQ(all[0].to, 7);
  EXPECT_EQ(all[0].time, 100u);
  EXPECT_EQ(all[1].from, 7);
  EXPECT_EQ(all[1].to, 0);
  EXPECT_EQ(all[1].from_name, "task");
  EXPECT_EQ(all[1].to_name, "swapper");
  EXPECT_GT(all[1].state, 0xfff) << "neither running nor asleep: perf's records do not say";
  EXPECT_EQ(all[2].state, 0) << "the idle task is always ready";
  EXPECT_EQ(all[2].time, 300u);
  EXPECT_GE(all[2].to, kPidLimit) << "from 300 to 500 no record says";
  EXPECT_EQ(all[3].time, 500u);
  EXPECT_EQ(all[3].to, 8);
  EXPECT_EQ(all[4].time, 600u);
  EXPECT_GE(all[4].to, kPidLimit);
  EXPECT_EQ(all[5].cpu, 3u);
  EXPECT_EQ(all[5].to, 9) << "and nothing after it: it ran to the end";
}

TEST(PerfettoSched, PreemptedThreadsCouldHaveRunOn) {
  Timeline t;
  t.summary.end = 900;
  t.runs = {run(0, 7, 100, 200), run(0, 8, 200, 300), run(0, 7, 300, 350), run(0, 7, 350, 400),
            run(0, 9, 400, 500)};
  t.runs[0].flags = t.runs[3].flags = t.runs[4].flags = Slice::kPreempted;  // the fourth after an exec
  for (const auto& [release, state] :
       {std::pair{"6.12.3-arch", 0x100}, {"4.14", 0x100}, {"4.9.1", 0x1000}, {"", 0x800}}) {
    const auto all = switches(written([&](PerfettoPackets& out) { write_sched(t, release, out); }));
    ASSERT_EQ(all.size(), 5u);
    EXPECT_EQ(all[1].from, 7);
    EXPECT_EQ(all[1].state, state) << release;
    EXPECT_EQ(all[2].from, 8);
    EXPECT_EQ(all[2].state, 0x2000) << "not preempted: asleep, in a state that no record says";
    EXPECT_EQ(all[3].from, 7);
    EXPECT_EQ(all[3].state, state) << release;
    EXPECT_EQ(all[4].from, 9);
    EXPECT_EQ(all[4].state, state) << "nobody is known to run after it";
  }
}

TEST(PerfettoSched, LongRecordingsAreInSeveralBundles) {
  Timeline t;
  for (Time i = 0; i < 2500; ++i)
    t.runs.push_back(run(1, static_cast<int32_t>(i % 2 + 1), i * 10, i * 10 + 10));
  t.summary.end = 25'000;
  const std::string trace = written([&](PerfettoPackets& out) { write_sched(t, "6.12.3", out); });
  const auto all = switches(trace);
  ASSERT_EQ(all.size(), 2500u);
  for (size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(all[i].time, i * 10);
    ASSERT_EQ(all[i].to, static_cast<int32_t>(i % 2 + 1));
  }
}

TEST(PerfettoSched, NumbersOfCpusFromDamagedFilesDoNotOverflow) {
  Timeline t;
  t.summary.end = 30;
  t.runs = {run(INT32_MAX, 5, 10, 20)};
  const auto all = switches(written([&](PerfettoPackets& out) { write_sched(t, "6.12.3", out); }));
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].cpu, static_cast<uint32_t>(INT32_MAX));
  EXPECT_GT(all[0].from, 0);
}

TEST(PerfettoSched, TheKernelIsNamed) {
  Capture capture;
  capture.machine = "aarch64";
  capture.os_release = "6.12.1-test";
  const std::string trace = written([&](PerfettoPackets& out) { write_system(capture, out); });
  EXPECT_NE(trace.find("6.12.1-test"), std::string::npos);
  EXPECT_NE(trace.find("aarch64"), std::string::npos);
  EXPECT_NE(trace.find("Linux"), std::string::npos);
  Capture bundle;
  bundle.machine = "x86_64";
  const std::string other = written([&](PerfettoPackets& out) { write_system(bundle, out); });
  EXPECT_NE(other.find("x86_64"), std::string::npos);
  EXPECT_EQ(other.find("Linux"), std::string::npos) << "a bundle of trace may be of any system";
  Capture unknown;
  EXPECT_EQ(written([&](PerfettoPackets& out) { write_system(unknown, out); }),
            written([](PerfettoPackets&) {}));
}

}  // namespace
}  // namespace asof::test
