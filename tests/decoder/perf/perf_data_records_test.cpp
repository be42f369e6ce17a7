// Contents of records: every field of each layout, and what happens when a field does not fit.
#include <fmt/format.h>

#include "decoder/perf/records.h"
#include "tests/decoder/perf/perf_bytes.h"

namespace asof::test {
namespace {

// One record of a file with one usual attribute; the file is kept alive.
struct OneRecord {
  PerfDataPtr data;
  Record record;
};

OneRecord one(bool big, uint32_t type, uint16_t misc, const PerfBytes::Body& body,
              const PerfBytes::Attr& attr = {.ids = {5}}) {
  PerfBytes file(big);
  file.attr(attr);
  if (type < 64 && type != 9) {
    file.record(type, misc, {.time = 700, .cpu = 3, .pid = 10, .tid = 11, .id = 5}, body);
  } else {
    file.record(type, misc, body);
  }
  OneRecord result{open_bytes(file.file()), {}};
  const auto records = records_of(*result.data);
  EXPECT_EQ(records.size(), 1U);
  if (!records.empty()) result.record = records[0];
  return result;
}

class PerfRecords : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(ByteOrders, PerfRecords, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "big" : "little"; });

TEST_P(PerfRecords, Mmap) {
  const auto r = one(GetParam(), 1, 1, [](ByteSink& s) {
    s.u32(UINT32_MAX);
    s.u32(0);
    s.u64(0xffffffff81000000);
    s.u64(0x1000000);
    s.u64(0xffffffff81000040);
    s.c_string("[kernel.kallsyms]_text", 8);
  });
  const auto m = parse_mmap(r.record);
  ASSERT_TRUE(m);
  EXPECT_EQ(m->pid, -1);
  EXPECT_EQ(m->addr, 0xffffffff81000000U);
  EXPECT_EQ(m->len, 0x1000000U);
  EXPECT_EQ(m->pgoff, 0xffffffff81000040U);
  EXPECT_EQ(m->filename, "[kernel.kallsyms]_text");
  EXPECT_TRUE(m->executable);
  EXPECT_FALSE(m->is_mmap2);
  EXPECT_EQ(cpu_mode(r.record), CpuMode::kKernel);
  EXPECT_EQ(r.record.id.time, 700);
  EXPECT_NE(describe_record(r.record).find("[kernel.kallsyms]_text"), std::string::npos);
}

TEST_P(PerfRecords, Mmap2WithInodeAndWithBuildId) {
  const auto head = [](ByteSink& s) {
    s.u32(10);
    s.u32(11);
    s.u64(0x401000);
    s.u64(0x2000);
    s.u64(0x1000);
  };
  const auto with_inode = one(GetParam(), 10, 2, [&](ByteSink& s) {
    head(s);
    s.u32(8);
    s.u32(1);
    s.u64(12345);
    s.u64(6);
    s.u32(1);  // PROT_READ
    s.u32(2);
    s.c_string("/bin/true", 8);
  });
  const auto m = parse_mmap(with_inode.record);
  ASSERT_TRUE(m);
  EXPECT_EQ(m->maj, 8U);
  EXPECT_EQ(m->inode, 12345U);
  EXPECT_EQ(m->inode_generation, 6U);
  EXPECT_FALSE(m->executable);
  EXPECT_TRUE(m->is_mmap2);
  EXPECT_EQ(m->build_id, "");
  EXPECT_EQ(m->filename, "/bin/true");
  const auto with_id = one(GetParam(), 10, 2 | 1 << 14, [&](ByteSink& s) {
    head(s);
    s.u8(3);
    s.zeros(3);
    s.u8(0xab);
    s.u8(0xcd);
    s.u8(0xef);
    s.zeros(17);
    s.u32(5);
    s.u32(2);
    s.c_string("/bin/false", 8);
  });
  const auto b = parse_mmap(with_id.record);
  ASSERT_TRUE(b);
  EXPECT_EQ(b->build_id, "abcdef");
  EXPECT_EQ(b->prot, 5U);
  EXPECT_TRUE(b->executable);
  EXPECT_EQ(b->filename, "/bin/false");
}

TEST_P(PerfRecords, TasksAndComm) {
  const auto comm = one(GetParam(), 3, 1 << 13, [](ByteSink& s) {
    s.u32(20);
    s.u32(21);
    s.c_string("sleep", 8);
  });
  EXPECT_EQ(parse_comm(comm.record)->comm, "sleep");
  EXPECT_TRUE(parse_comm(comm.record)->exec);
  const auto fork = one(GetParam(), 7, 0, [](ByteSink& s) {
    s.u32(30);
    s.u32(31);
    s.u32(32);
    s.u32(33);
    s.u64(999);
  });
  const auto t = parse_task(fork.record);
  ASSERT_TRUE(t);
  EXPECT_EQ(t->pid, 30);
  EXPECT_EQ(t->ppid, 31);
  EXPECT_EQ(t->tid, 32);
  EXPECT_EQ(t->ptid, 33);
  EXPECT_EQ(t->time, 999U);
  EXPECT_FALSE(parse_comm(fork.record).has_value());
  const auto ns = one(GetParam(), 16, 0, [](ByteSink& s) {
    s.u32(1);
    s.u32(2);
    s.u64(2);
    for (uint64_t v : {4U, 5U, 6U, 7U}) s.u64(v);
  });
  const auto n = parse_namespaces(ns.record);
  ASSERT_TRUE(n);
  ASSERT_EQ(n->links.size(), 2U);
  EXPECT_EQ(n->links[1].inode, 7U);
}

TEST_P(PerfRecords, Switches) {
  const auto out = one(GetParam(), 15, 1 << 13 | 1 << 14, [](ByteSink& s) {
    s.u32(50);
    s.u32(51);
  });
  const auto o = parse_switch(out.record);
  ASSERT_TRUE(o);
  EXPECT_TRUE(o->out && o->preempted && o->cpu_wide);
  EXPECT_EQ(o->next_prev_pid, 50);
  EXPECT_EQ(o->next_prev_tid, 51);
  EXPECT_EQ(out.record.id.tid, 11);
  const auto in = parse_switch(one(GetParam(), 14, 0, [](ByteSink&) {}).record);
  ASSERT_TRUE(in);
  EXPECT_FALSE(in->out || in->preempted || in->cpu_wide);
}

TEST_P(PerfRecords, KernelText) {
  const auto sym = one(GetParam(), 17, 0, [](ByteSink& s) {
    s.u64(0xffffffffc0000660);
    s.u32(75);
    s.u16(1);
    s.u16(1);
    s.c_string("bpf_prog_bc3f_v2", 8);
  });
  const auto k = parse_ksymbol(sym.record);
  ASSERT_TRUE(k);
  EXPECT_EQ(k->addr, 0xffffffffc0000660U);
  EXPECT_EQ(k->len, 75U);
  EXPECT_EQ(k->kind, KsymbolRecord::kBpf);
  EXPECT_TRUE(k->unregister);
  EXPECT_EQ(k->name, "bpf_prog_bc3f_v2");
  const auto bpf = one(GetParam(), 18, 0, [](ByteSink& s) {
    s.u16(2);
    s.u16(0);
    s.u32(17);
    for (uint8_t i = 0; i < 8; ++i) s.u8(i);
  });
  const auto b = parse_bpf_event(bpf.record);
  ASSERT_TRUE(b);
  EXPECT_EQ(b->kind, BpfEventRecord::kUnload);
  EXPECT_EQ(b->id, 17U);
  EXPECT_EQ(b->tag[7], 7);
  const auto poke = one(GetParam(), 20, 1, [](ByteSink& s) {
    s.u64(0xffffffff81234567);
    s.u16(5);
    s.u16(2);
    for (uint8_t i = 1; i <= 7; ++i) s.u8(i);
  });
  const auto p = parse_text_poke(poke.record);
  ASSERT_TRUE(p);
  EXPECT_EQ(p->addr, 0xffffffff81234567U);
  EXPECT_EQ(Bytes(p->old_bytes.begin(), p->old_bytes.end()), (Bytes{1, 2, 3, 4, 5}));
  EXPECT_EQ(Bytes(p->new_bytes.begin(), p->new_bytes.end()), (Bytes{6, 7}));
  EXPECT_EQ(describe_record(poke.record), "0xffffffff81234567 old 5 [0102030405] new 2 [0607]");
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

TEST_P(PerfRecords, TextPokeThatSaysMoreBytesThanItHasIsRefused) {
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

TEST_P(PerfRecords, LossesAndAux) {
  const auto lost = one(GetParam(), 2, 0, [](ByteSink& s) {
    s.u64(5);
    s.u64(1234);
  });
  EXPECT_EQ(parse_lost(lost.record)->lost, 1234U);
  const auto samples = one(GetParam(), 13, 0, [](ByteSink& s) { s.u64(77); });
  EXPECT_EQ(parse_lost(samples.record)->lost, 77U);
  const auto aux = one(GetParam(), 11, 0, [](ByteSink& s) {
    s.u64(4096);
    s.u64(8192);
    s.u64(5);
  });
  EXPECT_EQ(aux.data->aux_records()[0].flags, 5U);
  EXPECT_EQ(describe_record(aux.record), "offset 0x1000 size 0x2000 flags 0x5 truncated partial");
  const auto start = one(GetParam(), 12, 0, [](ByteSink& s) {
    s.u32(8);
    s.u32(9);
  });
  EXPECT_EQ(parse_itrace_start(start.record)->tid, 9);
  const auto hw = one(GetParam(), 21, 0, [](ByteSink& s) { s.u64(0x10); });
  EXPECT_EQ(*parse_aux_output_hw_id(hw.record), 0x10U);
  const auto throttle = one(GetParam(), 5, 0, [](ByteSink& s) {
    s.u64(1);
    s.u64(2);
    s.u64(3);
  });
  EXPECT_EQ(parse_throttle(throttle.record)->stream_id, 3U);
  const auto cgroup = one(GetParam(), 19, 0, [](ByteSink& s) {
    s.u64(1);
    s.c_string("/user.slice", 8);
  });
  EXPECT_EQ(parse_cgroup(cgroup.record)->path, "/user.slice");
}

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

TEST(PerfRecordNames, KnownAndUnknown) {
  EXPECT_EQ(record_type_name(1), "MMAP");
  EXPECT_EQ(record_type_name(20), "TEXT_POKE");
  EXPECT_EQ(record_type_name(22), "CALLCHAIN_DEFERRED");
  EXPECT_EQ(record_type_name(71), "AUXTRACE");
  EXPECT_EQ(record_type_name(83), "COMPRESSED2");
  EXPECT_EQ(record_type_name(86), "SCHEDSTAT_DOMAIN");
  EXPECT_EQ(record_type_name(0), "UNKNOWN(0)");
  EXPECT_EQ(record_type_name(23), "UNKNOWN(23)");
  EXPECT_EQ(record_type_name(87), "UNKNOWN(87)");
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
