// Contents of the records that perf itself writes.
#include "decoder/open/capture_perf.h"
#include "tests/decoder/perf/perf_records.h"

namespace asof::test {
namespace {

TEST_P(PerfRecords, TimeConvShortAndLong) {
  const auto put = [](ByteSink& s, bool full) {
    s.u64(10);
    s.u64(1000);
    s.u64(123456789);
    if (!full) return;
    s.u64(4);
    s.u64(0xffffffff);
    s.u8(1);
    s.u8(1);
    s.zeros(6);
  };
  const auto old = one(GetParam(), 79, 0, [&](ByteSink& s) { put(s, false); });
  ASSERT_TRUE(old.data->time_conv());
  EXPECT_EQ(old.data->time_conv()->zero, 123456789U);
  EXPECT_FALSE(old.data->time_conv()->cap_short);
  EXPECT_TRUE(old.data->time_conv()->cap_zero);
  const auto full = one(GetParam(), 79, 0, [&](ByteSink& s) { put(s, true); });
  EXPECT_EQ(full.data->time_conv()->mask, 0xffffffffU);
  EXPECT_TRUE(full.data->time_conv()->cap_short);
}

TEST_P(PerfRecords, AuxtraceInfoWithFilterAndCaps) {
  const std::string filter = "filter main @ /bin/x";  // 20 characters: with its NUL padded to 24
  const auto put = [&](ByteSink& s, uint64_t length) {
    s.u32(1);
    s.u32(0);
    for (uint64_t i = 0; i < 16; ++i) s.u64(100 + i);
    s.u64(length);
    s.c_string(filter, 8);
    s.u64(1);
  };
  const auto r = one(GetParam(), 70, 0, [&](ByteSink& s) { put(s, filter.size()); });
  ASSERT_TRUE(r.data->auxtrace_info());
  EXPECT_EQ(r.data->auxtrace_info()->filter, filter);
  EXPECT_TRUE(r.data->auxtrace_info()->cap_event_trace);
  EXPECT_EQ(r.data->auxtrace_info()->priv.at(15), 115U);
  EXPECT_EQ(perf_config(*r.data).filter, std::vector<AddrRange>{{}});  // which addresses is not known
  const auto lying = one(GetParam(), 70, 0, [&](ByteSink& s) { put(s, 5000); });
  EXPECT_FALSE(lying.data->auxtrace_info());
  EXPECT_TRUE(notice_of(lying.data->notices(), Code::kRecordTooShort));
}

TEST_P(PerfRecords, AuxtraceError) {
  const auto r = one(GetParam(), 72, 0, [](ByteSink& s) {
    for (const uint32_t v : {1U, 6U, 3U, 20U, 21U, 1U}) s.u32(v);
    s.u64(0x401234);
    s.u64(5555);
    s.c_string("Lost trace data", 64);
  });
  const auto e = parse_auxtrace_error(r.record);
  ASSERT_TRUE(e);
  EXPECT_EQ(e->code, 6U);
  EXPECT_EQ(e->cpu, 3);
  EXPECT_EQ(e->ip, 0x401234U);
  EXPECT_EQ(e->time, 5555U);
  EXPECT_EQ(e->message, "Lost trace data");
}

TEST_P(PerfRecords, MapsOfThreadsAndCpus) {
  const auto threads = one(GetParam(), 73, 0, [](ByteSink& s) {
    s.u64(2);
    s.u64(100);
    s.c_string("one", 16);
    s.u64(101);
    s.c_string("two", 16);
  });
  const auto t = parse_thread_map(threads.record);
  ASSERT_TRUE(t);
  EXPECT_EQ(t->threads.at(1).comm, "two");
  const auto cpus_of = [&](const PerfBytes::Body& body) {
    const auto map = parse_cpu_map(one(GetParam(), 74, 0, body).record);
    return map ? map->cpus : std::vector<uint32_t>{UINT32_MAX};
  };
  EXPECT_EQ(cpus_of([](ByteSink& s) {
              for (const int v : {0, 2, 4, 9}) s.u16(static_cast<uint16_t>(v));
            }),
            (std::vector<uint32_t>{4, 9}));
  EXPECT_EQ(cpus_of([](ByteSink& s) {
              for (const int v : {1, 1, 8, 0, 0}) s.u16(static_cast<uint16_t>(v));
              s.u64(0x8000000000000005);
            }),
            (std::vector<uint32_t>{0, 2, 63}));
  EXPECT_EQ(cpus_of([](ByteSink& s) {
              for (const int v : {1, 2, 4}) s.u16(static_cast<uint16_t>(v));
              s.u32(0x80000000);
              s.u32(1);
            }),
            (std::vector<uint32_t>{31, 32}));
  EXPECT_EQ(cpus_of([](ByteSink& s) {
              s.u16(2);
              s.u16(0);
              s.u16(3);
              s.u16(5);
            }),
            (std::vector<uint32_t>{3, 4, 5}));
  EXPECT_EQ(cpus_of([](ByteSink& s) {
              for (const int v : {0, 20, 4, 9}) s.u16(static_cast<uint16_t>(v));  // says 20 CPUs
            }),
            (std::vector<uint32_t>{UINT32_MAX}));
}

}  // namespace
}  // namespace asof::test
