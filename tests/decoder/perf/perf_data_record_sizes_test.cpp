// Records whose size, counts or optional fields decide where their fields are, and those where these are false.
#include "tests/decoder/perf/perf_records.h"

namespace asof::test {
namespace {

// All fields before AUX, so that a wrong width of any of them shows in the AUX bytes.
TEST_P(PerfRecords, SampleWithEveryField) {
  const PerfBytes::Attr attr{.sample_type = 0x1ffffff & ~(1ULL << 14),  // WEIGHT_STRUCT instead of WEIGHT
                             .ids = {5},
                             .read_format = 8 | 4 | 1 | 16,
                             .branch_sample_type = 1 << 17 | 1 << 19,
                             .regs_user = 0x7,
                             .regs_intr = 0x3};
  const auto r = one(
      GetParam(), 9, 2,
      [](ByteSink& s) {
        s.u64(5);         // IDENTIFIER
        s.u64(0x401000);  // IP
        s.u32(1);
        s.u32(2);
        s.u64(3000);
        s.u64(0xadd7);  // ADDR
        s.u64(5);       // ID
        s.u64(6);       // STREAM_ID
        s.u32(3);
        s.u32(0);
        s.u64(17);  // PERIOD
        for (const uint64_t v : {2, 50, 1, 2, 3, 4, 5, 6})
          s.u64(v);                                           // READ: group of 2, enabled, {value, id, lost}
        for (const uint64_t v : {2, 0x111, 0x222}) s.u64(v);  // CALLCHAIN
        s.u32(4);
        s.u32(0xfeedbeef);  // RAW
        for (const uint64_t v : {1, 99, 0xaaa, 0xbbb, 0, 0})
          s.u64(v);                                        // BRANCH_STACK: nr, hw_idx, one, counters
        for (const uint64_t v : {2, 1, 2, 3}) s.u64(v);    // REGS_USER
        for (const uint64_t v : {8, 0x57ac, 8}) s.u64(v);  // STACK_USER
        for (const uint64_t v : {1, 2, 3}) s.u64(v);       // WEIGHT_STRUCT, DATA_SRC, TRANSACTION
        for (const uint64_t v : {1, 1, 2}) s.u64(v);       // REGS_INTR
        for (const uint64_t v : {0x9000, 44, 4096, 4096}) s.u64(v);  // PHYS_ADDR, CGROUP, page sizes
        s.u64(3);
        s.u8(0xa1);
        s.u8(0xa2);
        s.u8(0xa3);
      },
      attr);
  const auto p = parse_sample(r.record);
  ASSERT_TRUE(p) << p.error().reason;
  EXPECT_EQ(*p->ip, 0x401000U);
  EXPECT_EQ(*p->addr, 0xadd7U);
  EXPECT_EQ(*p->period, 17U);
  EXPECT_EQ(p->callchain_size, 2U);
  EXPECT_EQ(p->raw.size(), 4U);
  EXPECT_EQ(p->branch_stack.size(), 24U);
  EXPECT_EQ(*p->phys_addr, 0x9000U);
  EXPECT_EQ(*p->cgroup, 44U);
  EXPECT_EQ(Bytes(p->aux.begin(), p->aux.end()), (Bytes{0xa1, 0xa2, 0xa3}));
  ASSERT_EQ(r.data->aux_buffers().size(), 1U);
  EXPECT_EQ(r.data->aux_buffers()[0].sample_time, 3000);
  EXPECT_EQ(r.data->aux_buffers()[0].cpu, 3);
}

// With several listeners, the kernel makes records longer than what it writes into them.
TEST_P(PerfRecords, LongerThanTheirFields) {
  const std::vector<std::pair<uint32_t, PerfBytes::Body>> kinds = {{17,
                                                                    [](ByteSink& s) {
                                                                      s.u64(0xffffffffc0000660);
                                                                      s.u32(75);
                                                                      s.u16(1);
                                                                      s.u16(0);
                                                                      s.c_string("bpf_prog", 8);
                                                                    }},
                                                                   {18,
                                                                    [](ByteSink& s) {
                                                                      s.u16(2);
                                                                      s.u16(0);
                                                                      s.u32(17);
                                                                      s.u64(7);
                                                                    }},
                                                                   {20, [](ByteSink& s) {
                                                                      s.u64(0xffffffff81234567);
                                                                      s.u16(5);
                                                                      s.u16(5);
                                                                      for (uint8_t i = 1; i <= 10; ++i)
                                                                        s.u8(i);
                                                                      s.align(8);
                                                                    }}};
  for (const auto& [type, fields] : kinds) {
    for (const unsigned rest : {0U, 8U, 32U, 64U}) {
      for (const uint8_t stale : {uint8_t{0}, uint8_t{0xff}}) {
        PerfBytes file(GetParam());
        file.attr({.ids = {5}});
        file.record(type, 0, [&](ByteSink& s) {
          fields(s);
          PerfBytes::put_tail(s, {.time = 700, .cpu = 3, .pid = 10, .tid = 11, .id = 5});
          for (unsigned i = 0; i < rest; ++i) s.u8(stale);
        });
        const auto data = open_bytes(file.file());
        const auto records = records_of(*data);
        ASSERT_EQ(records.size(), 1U);
        const Record& r = records[0];
        EXPECT_EQ(r.id.time, 700) << type << " " << rest;
        EXPECT_EQ(r.id.cpu, 3);
        EXPECT_EQ(r.id.id, 5U);
        if (type == 17) {
          EXPECT_EQ(parse_ksymbol(r)->name, "bpf_prog");
        } else if (type == 18) {
          EXPECT_EQ(parse_bpf_event(r)->id, 17U);
        } else {
          EXPECT_EQ(parse_text_poke(r)->new_bytes.size(), 5U);
        }
      }
    }
  }
}

TEST_P(PerfRecords, TextPokeThatStatesMoreBytesThanItHasIsRefused) {
  const auto poke_of = [](uint16_t old_len, uint16_t new_len) {
    return one(GetParam(), 20, 1, [=](ByteSink& s) {
      s.u64(0xffffffff81234567);
      s.u16(old_len);
      s.u16(new_len);
      s.zeros(12);
    });
  };
  EXPECT_TRUE(parse_text_poke(poke_of(6, 6).record).has_value());
  for (const auto& [old_len, new_len] : {std::pair<uint16_t, uint16_t>{6, 7}, {13, 0}, {65535, 65535}}) {
    const auto r = poke_of(old_len, new_len);
    const auto p = parse_text_poke(r.record);
    ASSERT_FALSE(p.has_value());
    EXPECT_EQ(p.error().code, Code::kRecordTooShort);
    EXPECT_EQ(p.error().offset, r.record.file_offset);
  }
}

TEST_P(PerfRecords, CountsThatLieAreErrors) {
  const PerfBytes::Attr chain{.sample_type = 1 << 5, .ids = {5}};
  const auto r = one(
      GetParam(), 9, 0, [](ByteSink& s) { s.u64(0x2000000000000001); }, chain);
  EXPECT_FALSE(parse_sample(r.record).has_value());
  const PerfBytes::Attr read{.sample_type = 1 << 4, .ids = {5}, .read_format = 8 | 4 | 16};
  const auto g = one(
      GetParam(), 9, 0, [](ByteSink& s) { s.u64(0x5555555555555556); }, read);  // times 24 bytes: wraps to 16
  EXPECT_FALSE(parse_sample(g.record).has_value());
  const auto n = one(GetParam(), 16, 0, [](ByteSink& s) {
    s.u32(1);
    s.u32(2);
    s.u64(0x1000000000000001);
    s.zeros(16);
  });
  EXPECT_FALSE(parse_namespaces(n.record).has_value());
}

// For any length, a parser either refuses or reads within the record (sanitizers check).
TEST(PerfRecordSizes, EveryTypeAtEveryLength) {
  for (const uint32_t type :
       {1, 2, 3, 4, 5, 7, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 70, 72, 73, 74, 79}) {
    size_t refused = 0;
    for (size_t length = 0; length <= 120; ++length) {
      PerfBytes file;
      file.attr({.flags = 0, .ids = {5}});
      file.record(type, 0, [&](ByteSink& s) {
        for (size_t i = 0; i < length; ++i) s.u8(i < 12 ? 0 : 1);
      });
      const auto data = open_bytes(file.file());
      for (const Record& record : records_of(*data)) {
        const std::string text = describe_record(record);
        refused += text.find("too short") != std::string::npos ? 1U : 0U;
      }
    }
    // SWITCH has no fields.
    EXPECT_EQ(refused != 0, type != 14) << "type " << type;
  }
}

}  // namespace
}  // namespace asof::test
