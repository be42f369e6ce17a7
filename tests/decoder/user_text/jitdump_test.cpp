// Code of JITs: the file, its position in the text of a process, and traces through addresses that are
// reused.
#include "decoder/user_text/jitdump.h"

#include <gtest/gtest.h>

#include "tests/decoder/capture_test_util.h"
#include "tests/support/jitdump_writer.h"

namespace asof {
namespace {

using namespace test;

constexpr Addr kCode = 0x7f0000001000;
const std::vector<Bytes> kUnknown = {{}};

std::unique_ptr<const JitDump> read(const Bytes& bytes, std::vector<Notice>* notices = nullptr) {
  const TempDir dir;
  write_bytes(dir / "jit-1.dump", bytes);
  NoticeBook book;
  auto dump = JitDump::load((dir / "jit-1.dump").string(), book);
  if (notices != nullptr) *notices = book.take();
  return dump ? std::move(*dump) : nullptr;
}

TEST(JitDumpFile, NameGivesTheProcess) {
  EXPECT_EQ(jitdump_pid("/tmp/jit-4711.dump"), 4711);
  EXPECT_EQ(jitdump_pid("jit-1.dump"), 1);
  for (const char* other : {"/tmp/jit-.dump", "/tmp/jit-1.dumps", "/tmp/jit-x.dump", "/jit-1.dump/x",
                            "jit-.dump", "jit-99999999999.dump", ""})
    EXPECT_EQ(jitdump_pid(other), -1) << other;
}

TEST(JitDumpFile, BothByteOrders) {
  for (const bool big : {false, true}) {
    JitDumpWriter w({.pid = 77, .big_endian = big});
    w.load(10, kCode, Bytes(20, 0x90), 5, "f");
    w.debug_info(11, kCode, 3, "f.js");
    w.unwinding_info(12, Bytes(24, 1));
    w.move(20, kCode, kCode + 0x100, 20, 5);
    w.close(30);
    const auto dump = read(w.bytes());
    ASSERT_NE(dump, nullptr) << big;
    EXPECT_EQ(dump->pid(), 77U);
    EXPECT_TRUE(dump->counter_time());
    ASSERT_EQ(dump->code().size(), 2U);
    EXPECT_EQ(dump->code()[0].range, (AddrRange{kCode, kCode + 20}));
    EXPECT_EQ(dump->code()[0].name, "f");
    EXPECT_EQ(dump->code()[1].kind, JitCode::Kind::kMove);
    EXPECT_EQ(dump->code()[1].moved_from, kCode);
    EXPECT_EQ(dump->code()[1].range.begin, kCode + 0x100);
    EXPECT_EQ(dump->code()[1].bytes.size(), 20U) << "a move has the bytes of its load";
  }
}

TEST(JitDumpFile, MoveOfALoadThatWasLeftOut) {
  JitDumpWriter w({});
  w.load(10, 0xffffffff81000000, Bytes(20, 0x90), 5, "kernel");
  w.move(20, kCode, kCode + 0x100, 20, 5);
  const auto dump = read(w.bytes());
  ASSERT_NE(dump, nullptr);
  ASSERT_EQ(dump->code().size(), 1U);
  EXPECT_EQ(dump->code()[0].kind, JitCode::Kind::kMove);
  EXPECT_TRUE(dump->code()[0].bytes.empty());
  EXPECT_TRUE(dump->code()[0].name.empty());
}

TEST(JitDumpFile, DamageEndsItAndWhatCannotBeIsLeftOut) {
  JitDumpWriter w({});
  w.load(10, kCode, Bytes(20, 0x90), 5, "f");
  w.load(11, 0xffffffff81000000, Bytes(20, 0x90), 6, "kernel");
  ByteSink lying = w.body();  // more code than the record has
  lying.u32(1), lying.u32(1), lying.u64(kCode), lying.u64(kCode), lying.u64(1U << 30U), lying.u64(7),
      lying.text("x"), lying.u8(0);
  w.record(0, 12, lying);
  w.load(13, kCode + 64, Bytes(8, 0x90), 8, "g");
  std::vector<Notice> notices;
  auto dump = read(w.bytes(), &notices);
  ASSERT_NE(dump, nullptr);
  ASSERT_EQ(dump->code().size(), 2U);
  EXPECT_EQ(dump->code()[1].name, "g");
  EXPECT_EQ(notices.size(), 2U);
  for (const Notice& n : notices) EXPECT_EQ(n.code, Code::kBadJitdumpRecord);
  for (size_t size = 0; size < w.bytes().size(); ++size) {  // cut anywhere: no more than the file holds
    const auto cut = read({w.bytes().begin(), w.bytes().begin() + static_cast<long>(size)}, &notices);
    EXPECT_EQ(cut == nullptr, size < 40) << size;
    EXPECT_LE(cut ? cut->code().size() : 0, 2U);
  }
  Bytes wild = w.bytes();
  wild[44] = 3;  // size of the first record
  dump = read(wild, &notices);
  ASSERT_NE(dump, nullptr);
  EXPECT_TRUE(dump->code().empty());
  ASSERT_FALSE(notices.empty());
  EXPECT_EQ(notices[0].code, Code::kBadJitdump);
}

// TIME_CONV of Recording is the identity, so counter values are perf's nanoseconds.
class Jit : public ::testing::Test {
 protected:
  void anon(uint64_t t, Addr at = kCode, uint64_t size = 0x1000, const std::string& name = "//anon",
            uint32_t prot = 5, uint32_t flags = 2) {
    r.writer.mmap2(
        {.pid = 7, .tid = 7, .addr = at, .len = size, .filename = name, .prot = prot, .flags = flags},
        Recording::at(t));
  }
  void marker(uint64_t t) { anon(t, 0x7f00ff000000, 0x1000, "/tmp/jit-7.dump"); }
  void open(const JitDumpWriter& w, CaptureOptions options = closed_options()) {
    r.writer.itrace_start(7, 7, Recording::at(5));
    write_bytes(r.dir.path() / "perf.data/jit-7.dump", w.bytes());
    auto opened = r.open(options);
    ASSERT_TRUE(opened.has_value()) << opened.error().reason;
    capture.emplace(std::move(*opened));
    const ContextChange* context = capture->streams[0].context_at(1000);
    ASSERT_NE(context, nullptr);
    space = context->space;
  }
  std::vector<Bytes> at(Addr a, Time t) { return contents(*capture->text, space, a, 1, t); }
  bool is_unsure(Addr a, Time t) { return test::is_unsure(*capture->text, space, a, t); }
  std::string name(Addr a, Time t) {
    const auto s = capture->symbols.find(space, a, t);
    return s ? s->symbol->name : "";
  }
  Recording r;
  std::optional<Capture> capture;
  Space space = kNoSpace;
};

TEST_F(Jit, LoadsAreVersionsWithNames) {
  anon(1);
  marker(2);
  JitDumpWriter w({.pid = 7});
  w.load(100, kCode, Bytes(32, 0x11), 1, "first");
  w.load(200, kCode + 16, Bytes(32, 0x22), 2, "second");
  open(w);
  EXPECT_EQ(at(kCode, 99), kUnknown);
  EXPECT_EQ(at(kCode, 100), std::vector<Bytes>{{0x11}});
  EXPECT_EQ(at(kCode + 20, 199), std::vector<Bytes>{{0x11}});
  EXPECT_EQ(at(kCode + 20, 200), std::vector<Bytes>{{0x22}});
  EXPECT_EQ(at(kCode + 4, 200), kUnknown) << "the rest of an overwritten function is free memory";
  EXPECT_EQ(name(kCode + 20, 150), "first");
  EXPECT_EQ(name(kCode + 20, 250), "second");
  EXPECT_EQ(name(kCode + 4, 250), "");
  const Cell cell = capture->text->cell(space, kCode + 20);
  const Origin& origin = capture->text->origin(cell.versions.back().origin);
  EXPECT_EQ(origin.kind, OriginKind::kJit);
  EXPECT_EQ(origin.name, "second");
}

TEST_F(Jit, MoveEndsOneAndBeginsAnother) {
  anon(1);
  marker(2);
  JitDumpWriter w({.pid = 7});
  w.load(100, kCode, Bytes(32, 0x11), 1, "f");
  w.move(200, kCode, kCode + 0x100, 32, 1);
  w.load(300, kCode, Bytes(16, 0x33), 2, "g");
  open(w);
  EXPECT_EQ(at(kCode + 0x100, 199), kUnknown);
  EXPECT_EQ(at(kCode + 0x100, 200), std::vector<Bytes>{{0x11}});
  EXPECT_EQ(at(kCode, 250), kUnknown);
  EXPECT_EQ(at(kCode, 300), std::vector<Bytes>{{0x33}});
  EXPECT_EQ(name(kCode + 0x100, 250), "f");
}

TEST_F(Jit, PagesMadeExecutableAgainKeepTheirCodeAndAFileCoversIt) {
  anon(1);
  marker(2);
  JitDumpWriter w({.pid = 7});
  w.load(100, kCode, Bytes(32, 0x11), 1, "f");
  w.load(170, kCode + 32, Bytes(32, 0x22), 1, "g");
  anon(120, 0x7f0012340000);
  anon(150);
  anon(160, kCode, 0x2000);
  anon(300, kCode, 0x1000, "/lib/other.so");
  open(w);
  EXPECT_EQ(at(kCode, 155), std::vector<Bytes>{{0x11}});
  EXPECT_FALSE(is_unsure(kCode, 119));
  EXPECT_TRUE(is_unsure(kCode, 120)) << "patched before the record at 150, after the one at 120";
  EXPECT_TRUE(is_unsure(kCode, 200));
  EXPECT_EQ(at(kCode + 32, 200), std::vector<Bytes>{{0x22}});
  EXPECT_FALSE(is_unsure(kCode + 32, 200)) << "nothing was mapped there since";
  EXPECT_EQ(at(kCode, 200), std::vector<Bytes>{{0x11}});
  EXPECT_EQ(at(kCode, 301), kUnknown);
}

TEST_F(Jit, CodeInWritableMemoryIsUnsure) {
  anon(1, kCode, 0x1000, "//anon", 7);
  anon(1, kCode + 0x1000, 0x1000, "/memfd:code (deleted)", 5, 1);
  marker(2);
  JitDumpWriter w({.pid = 7});
  w.load(100, kCode, Bytes(32, 0x11), 1, "writable");
  w.load(100, kCode + 0x1000, Bytes(32, 0x22), 2, "shared");
  w.load(100, kCode + 0x2000, Bytes(32, 0x33), 3, "not mapped yet");
  w.load(100, kCode + 0x4000, Bytes(32, 0x44), 4, "not mapped yet, then writable");
  anon(150, kCode + 0x2000);
  anon(150, kCode + 0x4000, 0x1000, "//anon", 7);
  w.load(200, kCode, Bytes(16, 0x55), 5, "again");
  open(w);
  EXPECT_TRUE(is_unsure(kCode, 100));
  EXPECT_TRUE(is_unsure(kCode, 200));
  EXPECT_EQ(at(kCode, 200), std::vector<Bytes>{{0x55}});
  EXPECT_TRUE(is_unsure(kCode + 0x1000, 100)) << "another mapping of it may be writable";
  EXPECT_EQ(at(kCode + 0x2000, 200), std::vector<Bytes>{{0x33}});
  EXPECT_FALSE(is_unsure(kCode + 0x2000, 200)) << "its first mapping";
  EXPECT_TRUE(is_unsure(kCode + 0x4000, 200));
  const auto said = [](const Notice& n) {
    return n.code == Code::kSelfModifyingProcess && n.where.ends_with("jit-7.dump");
  };
  EXPECT_EQ(std::ranges::count_if(capture->notices, said), 1);
}

TEST_F(Jit, WhatAForkInheritsCanBeMadeWritable) {
  anon(1);
  marker(2);
  JitDumpWriter w({.pid = 7});
  w.load(100, kCode, Bytes(32, 0x11), 1, "f");
  r.writer.fork(8, 7, 8, 7, Recording::at(200));
  r.writer.context_switch_cpu_wide(true, false, 8, 8, Recording::at(220, 0, 7, 7));
  r.writer.mmap2({.pid = 8, .tid = 8, .addr = kCode, .len = 0x1000, .filename = "//anon", .prot = 5},
                 Recording::at(300, 0, 8, 8));
  open(w);
  EXPECT_EQ(at(kCode, 400), std::vector<Bytes>{{0x11}});
  EXPECT_FALSE(is_unsure(kCode, 199));
  EXPECT_TRUE(is_unsure(kCode, 400));
  space = capture->streams[0].context_at(150)->space;
  EXPECT_EQ(at(kCode, 400), std::vector<Bytes>{{0x11}});
  EXPECT_FALSE(is_unsure(kCode, 400)) << "the parent's";
}

TEST_F(Jit, ExecEndsAllAndForkInherits) {
  anon(1);
  marker(2);
  JitDumpWriter w({.pid = 7});
  w.load(100, kCode, Bytes(32, 0x11), 1, "f");
  w.load(250, kCode, Bytes(32, 0x22), 1, "g");
  r.writer.fork(8, 7, 8, 7, Recording::at(200));
  r.writer.context_switch_cpu_wide(true, false, 8, 8, Recording::at(220, 0, 7, 7));
  r.writer.comm(8, 8, "other", true, Recording::at(400, 0, 8, 8));
  open(w);
  const auto space_at = [&](Time t) { return capture->streams[0].context_at(t)->space; };
  EXPECT_EQ(contents(*capture->text, space_at(300), kCode, 1, 300), std::vector<Bytes>{{0x11}})
      << "the child's";
  EXPECT_EQ(capture->symbols.find(space_at(300), kCode, 300)->symbol->name, "f");
  EXPECT_EQ(contents(*capture->text, space_at(410), kCode, 1, 410), kUnknown);
}

TEST_F(Jit, WithoutACommonClockOnlyAddressesUsedOnceAreKnown) {
  anon(1);
  marker(2);
  JitDumpWriter w({.pid = 7, .counter_time = false});
  w.load(100, kCode, Bytes(32, 0x11), 1, "f");
  w.load(200, kCode + 16, Bytes(32, 0x22), 2, "g");
  w.load(300, kCode + 64, Bytes(32, 0x33), 3, "h");
  open(w);
  EXPECT_NE(find_notice(*capture, Code::kJitdumpOtherClock), nullptr);
  for (const Addr shared : {kCode, kCode + 20, kCode + 40}) EXPECT_EQ(at(shared, 500), kUnknown);
  EXPECT_EQ(at(kCode + 70, 50), std::vector<Bytes>{{0x33}});
  EXPECT_TRUE(is_unsure(kCode + 70, 50)) << "nothing says whether the JIT had written it, or wrote it again";
  EXPECT_EQ(name(kCode + 70, 50), "h");
  EXPECT_EQ(name(kCode + 20, 50), "");
}

TEST_F(Jit, MissingAndForeignFilesAreReported) {
  marker(2);
  r.writer.itrace_start(7, 7, Recording::at(5));
  auto opened = r.open();
  ASSERT_TRUE(opened.has_value());
  const Notice* missing = find_notice(*opened, Code::kJitdumpNotFound);
  ASSERT_NE(missing, nullptr);
  EXPECT_EQ(missing->where, "/tmp/jit-7.dump");

  Recording other;
  other.writer.mmap2({.pid = 7, .tid = 7, .addr = kCode, .len = 0x1000, .filename = "/tmp/jit-7.dump"},
                     Recording::at(2));
  write_bytes(other.dir.path() / "perf.data/jit-7.dump", Bytes(64, 'x'));
  auto damaged = other.open();
  ASSERT_TRUE(damaged.has_value());
  EXPECT_NE(find_notice(*damaged, Code::kNotJitdump), nullptr);
}

TEST_F(Jit, FileGivenByOption) {
  anon(1);
  JitDumpWriter w({.pid = 7});
  w.load(100, kCode, Bytes(32, 0x11), 1, "f");
  write_bytes(r.dir / "saved.dump", w.bytes());
  CaptureOptions options = closed_options();
  options.jitdumps = {(r.dir / "saved.dump").string()};
  open(w, options);
  EXPECT_EQ(at(kCode, 100), std::vector<Bytes>{{0x11}});
}

}  // namespace
}  // namespace asof
