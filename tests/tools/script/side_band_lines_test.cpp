// Lines of records as perf 6.1 prints them; those of which the demo has none.
#include "tools/script/side_band_lines.h"

#include "tests/decoder/capture_test_util.h"

namespace asof::test {
namespace {

struct Line {
  std::string misc, text;
  bool operator==(const Line&) const = default;
};

std::vector<Line> lines_of(Recording& r, const SideBandChoice& choice) {
  const auto capture = r.open();
  EXPECT_TRUE(capture.has_value());
  SideBandLines all(*capture, choice);
  ScriptNames names(*capture);
  const std::string records = all.take(kTimeMax).text;
  std::vector<Line> out;
  for (size_t at = 0; at < records.size(); at += sizeof(ScriptRecord)) {
    const ScriptRecord one = ScriptRecord::from(records, at);
    out.push_back({all.misc(one), all.text(one, names)});
  }
  return out;
}

TEST(SideBandLines, Namespaces) {
  Recording r;
  ByteSink s;
  s.u32(7), s.u32(8), s.u64(7);
  for (uint64_t i = 0; i < 7; ++i) s.u64(4), s.u64(i == 6 ? 0 : 0xf0000000 + i);
  const Trailer t = Recording::at(100);
  r.writer.record(16, 2, s.bytes(), &t);
  EXPECT_EQ(lines_of(r, {.namespaces = true}),
            (std::vector<Line>{{"U",
                                "PERF_RECORD_NAMESPACES 7/8 - nr_namespaces: 7\n"
                                "\t\t[0/net: 4/0xf0000000, 1/uts: 4/0xf0000001, 2/ipc: 4/0xf0000002, "
                                "3/pid: 4/0xf0000003, \n"
                                "\t\t 4/user: 4/0xf0000004, 5/mnt: 4/0xf0000005, 6/cgroup: 4/0]"}}));
}

// As perf writes them when it starts, without time: a new thread still has its parent's name.
TEST(SideBandLines, ForksAreNamedAfterTheParent) {
  Recording r;
  r.writer.comm(2, 2, "parent", false, {});
  r.writer.fork(3, 2, 3, 2, {});
  r.writer.comm(3, 3, "child", false, {});
  const auto capture = r.open();
  ASSERT_TRUE(capture.has_value());
  SideBandLines all(*capture, {.tasks = true});
  const std::string records = all.take(kTimeMax).text;
  std::vector<uint64_t> threads;
  for (size_t at = 0; at < records.size(); at += sizeof(ScriptRecord))
    threads.push_back(ScriptRecord::from(records, at).b);
  EXPECT_EQ(threads, (std::vector<uint64_t>{2, 2, 3}));
}

TEST(SideBandLines, CgroupsAndTheirNames) {
  Recording r;
  ByteSink s;
  s.u64(23), s.text(std::string_view("/a\x1b[31m/b\0\0\0\0\0\0\0", 16));
  const Trailer t = Recording::at(100);
  r.writer.record(19, 0, s.bytes(), &t);
  EXPECT_EQ(lines_of(r, {.cgroups = true}),
            (std::vector<Line>{{"", "PERF_RECORD_CGROUP cgroup: 23 /a\\x1b[31m/b"}}));
}

TEST(SideBandLines, ChangesOfTextShowBothContents) {
  Recording r;
  r.symbol(Recording::kText + 0x100, 'T', "patched");
  r.writer.text_poke(Recording::kText + 0x104, Bytes(5, 0x90), Bytes(17, 0xcc), Recording::at(100));
  r.writer.ksymbol(Recording::kText + 0x1000, 27, 1, 1, "bpf_prog_1", Recording::at(200));
  r.writer.bpf_event(1, 11, {}, Recording::at(300));
  const auto pokes = lines_of(r, {.pokes = true});
  ASSERT_EQ(pokes.size(), 2U) << "changes and code that comes and goes, as perf has it";
  EXPECT_EQ(pokes[0].misc, "K");
  EXPECT_EQ(pokes[0].text,
            "PERF_RECORD_TEXT_POKE ffffffff81000104 patched+0x4 old len 5 new len 17\n"
            "            Old bytes: 90 90 90 90 90\n"
            "            New bytes: cc cc cc cc cc cc cc cc cc cc cc cc cc cc cc cc\n"
            "            New bytes: cc");
  EXPECT_EQ(pokes[1].text,
            "PERF_RECORD_KSYMBOL addr ffffffff81001000 len 27 type 1 flags 0x1 name bpf_prog_1");
}

TEST(SideBandLines, MiscSaysWhatTheTypeMakesOfIt) {
  Recording r;
  r.writer.context_switch_cpu_wide(true, true, 8, 8, Recording::at(100));
  r.writer.context_switch_cpu_wide(true, false, 8, 8, Recording::at(101));
  r.writer.context_switch_cpu_wide(false, false, 8, 8, Recording::at(102));
  r.writer.comm(7, 7, "a", true, Recording::at(103));
  r.writer.comm(7, 7, "b", false, Recording::at(104));
  ByteSink s;
  s.u32(8), s.u32(8);
  const Trailer t = Recording::at(105);
  r.writer.record(15, 3, s.bytes(), &t);  // PERF_RECORD_MISC_HYPERVISOR
  const auto all = lines_of(r, {.tasks = true, .switches = true});
  std::vector<std::string> misc;
  for (const Line& line : all) misc.push_back(line.misc);
  EXPECT_EQ(misc, (std::vector<std::string>{"Sp", "S", "", "UE", "U", "KUH"}));
}

}  // namespace
}  // namespace asof::test
