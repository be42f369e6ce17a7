// Contents of the records that the kernel writes: every field of each layout.
#include "tests/decoder/perf/perf_records.h"

namespace asof::test {
namespace {

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

}  // namespace
}  // namespace asof::test
