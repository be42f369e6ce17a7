// User text: spaces of processes, mappings over time, identity of files, contexts.
#include "decoder/user_text/user_text.h"

#include <gtest/gtest.h>

#include "tests/decoder/capture_test_util.h"

namespace asof {
namespace {

using namespace test;

const std::vector<Bytes> kUnknown = {{}};
constexpr Addr kCode = 0x401000;

Bytes program(uint8_t fill, uint8_t id) {
  ExecutableSpec spec{.address = kCode,
                      .text = Bytes(64, fill),
                      .symbols = {{"main", kCode, 16}},
                      .build_id = id == 0 ? Bytes() : Bytes(20, id)};
  return make_executable(spec);
}

class User : public ::testing::Test {
 protected:
  void file(const std::string& path, uint8_t fill, uint8_t id) {
    write_bytes(r.dir.path() / ("perf.data/symfs" + path), program(fill, id));
  }
  // The program's code page, mapped.
  void map(int32_t pid, const std::string& path, uint8_t id, const Trailer& t, Addr addr = kCode,
           uint32_t prot = 5) {
    MmapSpec spec{.pid = pid,
                  .tid = pid,
                  .addr = addr,
                  .len = 0x1000,
                  .pgoff = 0x1000,
                  .filename = path,
                  .build_id = id == 0 ? Bytes() : Bytes(20, id),
                  .prot = prot};
    r.writer.mmap2(spec, t);
  }
  void open(const CaptureOptions& options = closed_options()) {
    auto opened = r.open(options);
    ASSERT_TRUE(opened.has_value()) << opened.error().reason;
    capture.emplace(std::move(*opened));
    ASSERT_EQ(capture->streams.size(), 1U);
  }
  Space space_at(Time t) {
    const ContextChange* context = capture->streams[0].context_at(t);
    return context == nullptr ? kNoSpace : context->space;
  }
  bool is_unsure(Addr a, Time t) {
    const Cell cell = capture->text->cell(space_at(t), a);
    return std::ranges::any_of(cell.versions, [&](const Version& v) {
      return v.unsure && v.possible_in({t, t});
    });
  }
  std::vector<Bytes> at(Addr a, Time t) { return contents(*capture->text, space_at(t), a, 1, t); }
  Recording r;
  std::optional<Capture> capture;
};

TEST_F(User, MappedFileWithItsBuildId) {
  file("/bin/a", 0x11, 0xaa);
  map(7, "/bin/a", 0xaa, {});
  r.writer.itrace_start(7, 7, Recording::at(10));
  open();
  EXPECT_EQ(at(kCode, 100), std::vector<Bytes>{{0x11}});
  EXPECT_EQ(at(kCode + 0x1000, 100), kUnknown);
  EXPECT_EQ(find_notice(*capture, Code::kFileNotVerified), nullptr);
  auto symbol = capture->symbols.find(space_at(100), kCode + 2, 100);
  ASSERT_TRUE(symbol.has_value());
  EXPECT_EQ(symbol->symbol->name, "main");
  EXPECT_EQ(symbol->symbol->dso, "/bin/a");
}

// simpleperf stores ids of 16 bytes as 20 with trailing zeros, and people pull files into one folder without
// their paths.
TEST_F(User, FileByNameAloneNeedsItsBuildId) {
  file("/a", 0x11, 0xaa);
  file("/b", 0x22, 0xbb);
  ExecutableSpec brief{.address = kCode, .text = Bytes(64, 0x33), .build_id = Bytes(16, 0xcc)};
  write_bytes(r.dir.path() / "perf.data/symfs/c", make_executable(brief));
  map(7, "/data/local/tmp/a", 0xaa, {});
  map(7, "/data/local/tmp/b", 0, {}, kCode + 0x10000);
  MmapSpec padded{.pid = 7,
                  .tid = 7,
                  .addr = kCode + 0x20000,
                  .len = 0x1000,
                  .pgoff = 0x1000,
                  .filename = "/data/local/tmp/c",
                  .build_id = Bytes(16, 0xcc)};
  padded.build_id.resize(20);
  r.writer.mmap2(padded);
  r.writer.itrace_start(7, 7, Recording::at(10));
  open();
  EXPECT_EQ(at(kCode, 100), std::vector<Bytes>{{0x11}});
  EXPECT_EQ(at(kCode + 0x10000, 100), kUnknown);
  EXPECT_EQ(at(kCode + 0x20000, 100), std::vector<Bytes>{{0x33}});
}

TEST_F(User, ForeignFileIsReportedWithBothIdsAndNotUsed) {
  file("/bin/a", 0x11, 0xbb);
  map(7, "/bin/a", 0xaa, {});
  r.writer.itrace_start(7, 7, Recording::at(10));
  open();
  EXPECT_EQ(at(kCode, 100), kUnknown);
  const Notice* notice = find_notice(*capture, Code::kOtherBuildId);
  ASSERT_NE(notice, nullptr);
  EXPECT_NE(notice->reason.find(std::string(40, 'a')), std::string::npos);
  EXPECT_NE(notice->reason.find(std::string(40, 'b')), std::string::npos);
}

TEST_F(User, ForcedFileIsUsedAndReported) {
  file("/bin/a", 0x11, 0xbb);
  map(7, "/bin/a", 0xaa, {});
  r.writer.itrace_start(7, 7, Recording::at(10));
  CaptureOptions options = closed_options();
  options.force = true;
  open(options);
  EXPECT_EQ(at(kCode, 100), std::vector<Bytes>{{0x11}});
  EXPECT_NE(find_notice(*capture, Code::kOtherBuildIdUsed), nullptr);
  EXPECT_TRUE(is_unsure(kCode, 100));
}

// Without build-ids in the records, perf notes one for each path when it ends.
class Inodes : public User {
 protected:
  void map_inode(int32_t pid, const std::string& path, uint64_t inode, Addr addr) {
    constexpr uint32_t kMmap2 = 10;
    constexpr uint16_t kUser = 2;
    Bytes body;
    const auto put = [&](uint64_t value, size_t size) {
      for (size_t i = 0; i < size; ++i) body.push_back(static_cast<uint8_t>(value >> (8 * i)));
    };
    put(static_cast<uint32_t>(pid), 4), put(static_cast<uint32_t>(pid), 4);
    put(addr, 8), put(0x1000, 8), put(0x1000, 8);
    put(8, 4), put(1, 4), put(inode, 8), put(0, 8);  // device 8:1, no generation
    put(5, 4), put(2, 4);                            // r-x, private
    body.insert(body.end(), path.begin(), path.end());
    body.resize((body.size() + 8) / 8 * 8);
    const Trailer t{};
    r.writer.record(kMmap2, kUser, body, &t);
  }
  void record(uint64_t other) {
    file("/bin/a", 0x11, 0xaa);
    map_inode(7, "/bin/a", 1, kCode);
    map_inode(8, "/bin/a", other, kCode);
    r.writer.build_ids(std::vector{
        PerfDataWriter::BuildIdSpec{.pid = -1, .misc = 2, .id = Bytes(20, 0xaa), .filename = "/bin/a"}});
    r.writer.itrace_start(7, 7, Recording::at(10));
    open();
  }
};

TEST_F(User, SeveralIdsOfOnePathInTheHeader) {
  file("/bin/a", 0x11, 0xaa);
  map(7, "/bin/a", 0, {});
  r.writer.build_ids(std::vector{
      PerfDataWriter::BuildIdSpec{.pid = -1, .misc = 2, .id = Bytes(20, 0xaa), .filename = "/bin/a"},
      PerfDataWriter::BuildIdSpec{.pid = -1, .misc = 2, .id = Bytes(20, 0xbb), .filename = "/bin/a"}});
  r.writer.itrace_start(7, 7, Recording::at(10));
  open();
  EXPECT_EQ(at(kCode, 100), std::vector<Bytes>{{0x11}});
  EXPECT_TRUE(is_unsure(kCode, 100));
}

TEST_F(Inodes, OfOneFileTheIdOfThePathCounts) {
  record(1);
  EXPECT_EQ(at(kCode, 100), std::vector<Bytes>{{0x11}});
  EXPECT_FALSE(is_unsure(kCode, 100));
}

TEST_F(Inodes, OfSeveralFilesNobodyKnowsWhichHasIt) {
  record(2);
  EXPECT_EQ(at(kCode, 100), std::vector<Bytes>{{0x11}});
  EXPECT_TRUE(is_unsure(kCode, 100));
}

TEST_F(User, IdFromTheHeaderCounts) {
  file("/bin/a", 0x11, 0xbb);
  map(7, "/bin/a", 0, {});
  r.writer.build_ids(std::vector{
      PerfDataWriter::BuildIdSpec{.pid = -1, .misc = 2, .id = Bytes(20, 0xaa), .filename = "/bin/a"}});
  r.writer.itrace_start(7, 7, Recording::at(10));
  open();
  EXPECT_NE(find_notice(*capture, Code::kOtherBuildId), nullptr);
  EXPECT_EQ(at(kCode, 100), kUnknown);
}

TEST_F(User, MissingIdIsReportedAndANewerFileIsAnError) {
  map(7, "/bin/a", 0, {});
  r.writer.itrace_start(7, 7, Recording::at(10));
  file("/bin/a", 0x11, 0xaa);
  const auto future = std::filesystem::file_time_type::clock::now() + std::chrono::hours(1);
  std::filesystem::last_write_time(r.dir.path() / "perf.data/symfs/bin/a", future);
  open();
  EXPECT_EQ(at(kCode, 100), std::vector<Bytes>{{0x11}});
  const Notice* notice = find_notice(*capture, Code::kFileNewerThanRecording);
  ASSERT_NE(notice, nullptr);
  EXPECT_NE(notice->reason.find("newer than the recording"), std::string::npos);
  EXPECT_TRUE(is_unsure(kCode, 100));
}

TEST_F(User, BuildIdCache) {
  const std::string hex(38, 'a');
  write_bytes(r.dir.path() / ("cache/.build-id/aa/" + hex + "/elf"), program(0x22, 0xaa));
  map(7, "/bin/gone", 0xaa, {});
  r.writer.itrace_start(7, 7, Recording::at(10));
  CaptureOptions options = closed_options();
  options.buildid_dir = (r.dir / "cache").string();
  open(options);
  EXPECT_EQ(at(kCode, 100), std::vector<Bytes>{{0x22}});
}

TEST_F(User, MissingFileIsUnknownAndNamed) {
  map(7, "/bin/gone", 0xaa, {});
  r.writer.itrace_start(7, 7, Recording::at(10));
  open();
  EXPECT_EQ(at(kCode, 100), kUnknown);
  const Notice* notice = find_notice(*capture, Code::kFileNotFound);
  ASSERT_NE(notice, nullptr);
  EXPECT_EQ(notice->where, "/bin/gone");
}

TEST_F(User, LaterMappingReplacesWhatItCovers) {
  file("/bin/a", 0x11, 0xaa);
  file("/bin/b", 0x22, 0xbb);
  map(7, "/bin/a", 0xaa, {});
  map(7, "/bin/b", 0xbb, Recording::at(200, 0, 7, 7));
  map(7, "//anon", 0, Recording::at(300, 0, 7, 7), kCode, 3);  // no longer code
  r.writer.itrace_start(7, 7, Recording::at(10));
  open();
  EXPECT_EQ(at(kCode, 199), std::vector<Bytes>{{0x11}});
  EXPECT_EQ(at(kCode, 200), std::vector<Bytes>{{0x22}});
  EXPECT_EQ(at(kCode, 300), kUnknown);
}

TEST_F(User, ForkInheritsAndExecStartsAnew) {
  file("/bin/a", 0x11, 0xaa);
  file("/bin/b", 0x22, 0xbb);
  r.writer.comm(7, 7, "parent", false);
  map(7, "/bin/a", 0xaa, {});
  r.writer.itrace_start(7, 7, Recording::at(10));
  r.writer.fork(8, 7, 8, 7, Recording::at(100));
  r.writer.context_switch_cpu_wide(true, false, 8, 8, Recording::at(110, 0, 7, 7));
  r.writer.comm(8, 8, "child", true, Recording::at(200, 0, 8, 8));
  map(8, "/bin/b", 0xbb, Recording::at(210, 0, 8, 8), kCode + 0x10000);
  r.writer.context_switch_cpu_wide(true, false, 7, 7, Recording::at(300, 0, 8, 8));
  open();
  const Space parent = space_at(50);
  EXPECT_EQ(at(kCode, 50), std::vector<Bytes>{{0x11}});
  EXPECT_NE(space_at(150), parent);
  EXPECT_EQ(at(kCode, 150), std::vector<Bytes>{{0x11}});  // inherited
  EXPECT_NE(space_at(250), space_at(150));                // exec without a switch
  EXPECT_EQ(at(kCode, 250), kUnknown);
  EXPECT_EQ(at(kCode + 0x10000, 250), std::vector<Bytes>{{0x22}});
  EXPECT_EQ(space_at(350), parent);
  EXPECT_EQ(capture->tasks.comm(8, 150), "parent");
  EXPECT_EQ(capture->tasks.comm(8, 250), "child");
}

// The number of a process that is gone, given to a child of one that the recording does not know.
TEST_F(User, AnotherProcessOfTheSameNumberInheritsNothing) {
  file("/bin/a", 0x11, 0xaa);
  map(7, "/bin/a", 0xaa, {});
  r.writer.itrace_start(7, 7, Recording::at(10));
  r.writer.fork(7, 99, 7, 99, Recording::at(100));
  open();
  EXPECT_EQ(at(kCode, 50), std::vector<Bytes>{{0x11}});
  EXPECT_NE(space_at(150), space_at(50));
  EXPECT_EQ(at(kCode, 150), kUnknown);
}

TEST_F(User, ChildReplacesWhatItInherited) {
  file("/bin/a", 0x11, 0xaa);
  file("/bin/b", 0x22, 0xbb);
  map(7, "/bin/a", 0xaa, {});
  r.writer.fork(8, 7, 8, 7, Recording::at(100));
  map(8, "/bin/b", 0xbb, Recording::at(200, 0, 8, 8));
  r.writer.itrace_start(8, 8, Recording::at(101));
  open();
  EXPECT_EQ(at(kCode, 150), std::vector<Bytes>{{0x11}});
  EXPECT_EQ(at(kCode, 250), std::vector<Bytes>{{0x22}});
}

TEST_F(User, ThreadsShareTheirProcessSpace) {
  file("/bin/a", 0x11, 0xaa);
  map(7, "/bin/a", 0xaa, {});
  r.writer.fork(7, 7, 9, 7, Recording::at(50));
  r.writer.itrace_start(7, 9, Recording::at(60));
  open();
  EXPECT_EQ(at(kCode, 100), std::vector<Bytes>{{0x11}});
}

TEST_F(User, SwitchesOutrankTheTraceStart) {
  file("/bin/a", 0x11, 0xaa);
  map(7, "/bin/a", 0xaa, {});
  r.writer.itrace_start(0, 0, Recording::at(60, 0, 0, 0));
  r.writer.context_switch_cpu_wide(true, false, 0, 0, Recording::at(100, 0, 7, 7));
  open();
  EXPECT_EQ(at(kCode, 80), std::vector<Bytes>{{0x11}});
  EXPECT_EQ(space_at(120), kNoSpace);
}

// Records of the ring that is full are lost from its last one on: the task that ran then need not run on.
TEST_F(User, NobodyIsKnownToRunWhereSwitchesMayBeLost) {
  file("/bin/a", 0x11, 0xaa);
  map(7, "/bin/a", 0xaa, {});
  map(8, "/bin/a", 0xaa, {});
  r.writer.context_switch_cpu_wide(false, false, 0, 0, Recording::at(100, 0, 7, 7));
  r.writer.lost(1, 30, Recording::at(300));
  r.writer.context_switch_cpu_wide(true, false, 0, 0, Recording::at(301, 0, 8, 8));
  r.writer.context_switch_cpu_wide(false, false, 0, 0, Recording::at(400, 0, 7, 7));
  open();
  const auto task_at = [this](Time t) {
    const ContextChange* const c = capture->streams[0].context_at(t);
    return c == nullptr ? -2 : c->tid;
  };
  EXPECT_EQ(task_at(100), 7);
  EXPECT_EQ(task_at(200), -1);
  EXPECT_EQ(space_at(200), kNoSpace);
  EXPECT_EQ(task_at(350), 0);
  EXPECT_EQ(task_at(500), 7);
}

// The kernel says of a task that leaves whether it could have run on; the record of the one that comes does not.
// 8 leaves, but 7 had come.
TEST_F(User, NobodyIsKnownToRunWhereSwitchesContradictEachOther) {
  r.writer.itrace_start(7, 7, Recording::at(10));
  r.writer.context_switch_cpu_wide(true, false, 8, 8, Recording::at(100, 0, 7, 7));
  r.writer.context_switch_cpu_wide(false, false, 7, 7, Recording::at(101, 0, 8, 8));
  r.writer.context_switch_cpu_wide(true, false, 7, 7, Recording::at(200, 0, 8, 8));
  r.writer.context_switch_cpu_wide(true, false, 9, 9, Recording::at(300, 0, 8, 8));
  open();
  const auto tid_at = [&](Time t) { return capture->streams[0].context_at(t)->tid; };
  EXPECT_EQ(tid_at(150), 8);
  EXPECT_EQ(tid_at(200), 7);
  EXPECT_EQ(tid_at(250), -1);
  EXPECT_EQ(tid_at(350), 9);
}

TEST_F(User, WhoPreemptsIsKept) {
  r.writer.context_switch_cpu_wide(true, true, 8, 8, Recording::at(100, 0, 7, 7));
  r.writer.context_switch_cpu_wide(false, false, 7, 7, Recording::at(101, 0, 8, 8));
  r.writer.context_switch_cpu_wide(true, false, 9, 9, Recording::at(200, 0, 8, 8));
  r.writer.context_switch_cpu_wide(true, true, 7, 7, Recording::at(300, 0, 9, 9));
  r.writer.context_switch_cpu_wide(false, false, 9, 9, Recording::at(300, 0, 7, 7));
  r.writer.comm(7, 7, "new", true, Recording::at(350, 0, 7, 7));
  open();
  const auto preempts = [this](Time t) {
    const ContextChange* const c = capture->streams[0].context_at(t);
    return c != nullptr && c->preempts;
  };
  EXPECT_FALSE(preempts(50));
  EXPECT_TRUE(preempts(150));
  EXPECT_FALSE(preempts(250));
  EXPECT_TRUE(preempts(320)) << "both records of the switch have one time";
  EXPECT_FALSE(preempts(400)) << "an exec takes no one off the CPU";
  EXPECT_EQ(capture->streams[0].contexts.back().time, 350);
}

TEST_F(User, TheTaskFromBeforeALossIsKnownAgain) {
  r.writer.context_switch_cpu_wide(false, false, 0, 0, Recording::at(100, 0, 7, 7));
  r.writer.lost(1, 30, Recording::at(300));
  r.writer.context_switch_cpu_wide(false, false, 0, 0, Recording::at(310, 0, 7, 7));
  open();
  const std::vector<ContextChange>& all = capture->streams[0].contexts;
  ASSERT_EQ(all.size(), 4U);  // the first: who ran before
  EXPECT_EQ(all[2].tid, -1);
  EXPECT_EQ(all[3].tid, 7);
  EXPECT_EQ(all[3].time, 310);
}

// The first record of a ring: what ran before it is unknown, and not the task that it takes away.
TEST_F(User, NobodyIsKnownToRunBeforeALossAtTheStart) {
  r.writer.lost(1, 30, Recording::at(300));
  r.writer.context_switch_cpu_wide(true, false, 0, 0, Recording::at(350, 0, 8, 8));
  open();
  ASSERT_NE(capture->streams[0].context_at(200), nullptr);
  EXPECT_EQ(capture->streams[0].context_at(200)->tid, -1);
  ASSERT_NE(capture->streams[0].context_at(320), nullptr);
  EXPECT_EQ(capture->streams[0].context_at(320)->tid, 8);
}

TEST_F(User, JitCodeIsUnknownAndItsNamesAreKnown) {
  MmapSpec jit{
      .pid = 7, .tid = 7, .addr = 0x7f0000000000, .len = 0x2000, .pgoff = 0, .filename = "//anon", .prot = 7};
  r.writer.mmap2(jit);
  r.writer.itrace_start(7, 7, Recording::at(10));
  write_text(r.dir.path() / "perf.data/perf-7.map", "7f0000000010 20 js:fib\nnonsense\n7f00 zz x\n");
  open();
  EXPECT_EQ(at(0x7f0000000010, 100), kUnknown);
  auto symbol = capture->symbols.find(space_at(100), 0x7f0000000014, 100);
  ASSERT_TRUE(symbol.has_value());
  EXPECT_EQ(symbol->symbol->name, "js:fib");
}

// May the process have changed what is there at t? (Version::unsure)
bool unsure_at(const Capture& capture, Space space, Addr a, Time t) {
  bool unsure = false;
  for (const Version& v : capture.text->cell(space, a).versions)
    unsure = unsure || (v.possible_in({t, t}) && v.unsure);
  return unsure;
}

// mprotect() of one page of two, by a child on inherited memory, and by its parent later.
TEST_F(User, ChildMakesInheritedCodeExecutableAgain) {
  ExecutableSpec spec{.address = kCode, .text = Bytes(0x2000, 0x11), .build_id = Bytes(20, 0xaa)};
  write_bytes(r.dir.path() / "perf.data/symfs/bin/a", make_executable(spec));
  MmapSpec whole{.pid = 7,
                 .tid = 7,
                 .addr = kCode,
                 .len = 0x2000,
                 .pgoff = 0x1000,
                 .filename = "/bin/a",
                 .build_id = Bytes(20, 0xaa)};
  r.writer.mmap2(whole);
  r.writer.fork(8, 7, 8, 7, Recording::at(100));
  MmapSpec second = whole;
  second.addr += 0x1000, second.len = 0x1000, second.pgoff += 0x1000;
  second.pid = second.tid = 8;
  r.writer.mmap2(second, Recording::at(200, 0, 8, 8));
  second.pid = second.tid = 7;
  r.writer.mmap2(second, Recording::at(300, 0, 7, 7));
  r.writer.context_switch_cpu_wide(true, false, 7, 7, Recording::at(250, 0, 8, 8));
  open();
  const Space child = space_at(150), parent = space_at(310);
  ASSERT_NE(child, parent);
  for (const Time t : {99, 150, 210, 310})
    EXPECT_FALSE(unsure_at(*capture, parent, kCode, t) || unsure_at(*capture, child, kCode, t)) << t;
  EXPECT_TRUE(unsure_at(*capture, child, kCode + 0x1000, 150));  // no record shows an earlier state
  EXPECT_TRUE(unsure_at(*capture, child, kCode + 0x1000, 210));
  EXPECT_TRUE(unsure_at(*capture, parent, kCode + 0x1000, 310));
  EXPECT_EQ(contents(*capture->text, child, kCode + 0x1000, 1, 210), std::vector<Bytes>{{0x11}});
  EXPECT_NE(find_notice(*capture, Code::kSelfModifyingProcess), nullptr);
}

// perf -d records mappings that are not code: headers before code, as linkers lay files out.
TEST_F(User, LoadersMapCodeOnce) {
  file("/bin/a", 0x11, 0xaa);
  MmapSpec head{.pid = 7,
                .tid = 7,
                .addr = kCode - 0x1000,
                .len = 0x3000,
                .pgoff = 0,
                .filename = "/bin/a",
                .build_id = Bytes(20, 0xaa),
                .prot = 1};
  r.writer.mmap2(head, Recording::at(50, 0, 7, 7));
  map(7, "/bin/a", 0xaa, Recording::at(51, 0, 7, 7));
  MmapSpec data = head;
  data.addr = kCode + 0x1000, data.len = 0x1000, data.pgoff = 0x1000, data.prot = 3;
  r.writer.mmap2(data, Recording::at(52, 0, 7, 7));
  r.writer.itrace_start(7, 7, Recording::at(10));
  open();
  EXPECT_EQ(at(kCode, 100), std::vector<Bytes>{{0x11}});
  EXPECT_FALSE(unsure_at(*capture, space_at(100), kCode, 100));
  EXPECT_EQ(find_notice(*capture, Code::kSelfModifyingProcess), nullptr);
}

TEST(BuildIds, AreComparedByValue) {
  EXPECT_EQ(normal_build_id("6AA9A4E2-6F28"), "6aa9a4e26f28");
  EXPECT_TRUE(same_build_id("abcd", "abcd"));
  EXPECT_TRUE(same_build_id("abcd", "abcd0000"));  // padded by old records
  EXPECT_FALSE(same_build_id("abcd", "abcd0001"));
  EXPECT_FALSE(same_build_id("", ""));
  EXPECT_FALSE(same_build_id("", "0000"));
}

}  // namespace
}  // namespace asof
