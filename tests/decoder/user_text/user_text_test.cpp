// User text: files of mappings, their identity, code that is made while it runs.
#include "decoder/user_text/user_text.h"

#include <chrono>
#include <thread>

#include "tests/decoder/user_text/user_fixture.h"

namespace asof {
namespace {

using namespace test;

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

// Of a trace of the kernel alone, files of processes are not looked for; who ran is known.
TEST(KernelAlone, NeedsNoFilesOfProcesses) {
  for (const bool user : {true, false}) {
    Recording r(user ? 0 : attr_flag::kExcludeUser);
    r.writer.comm(7, 7, "worker", false, Recording::at(5));
    r.writer.mmap2({.pid = 7, .tid = 7, .addr = kCode, .len = 0x1000, .filename = "/no/such/file", .prot = 5},
                   Recording::at(6));
    r.writer.itrace_start(7, 7, Recording::at(10));
    const auto capture = r.open();
    ASSERT_TRUE(capture.has_value()) << capture.error().reason;
    EXPECT_EQ(capture->exclude_user, !user);
    EXPECT_EQ(find_notice(*capture, Code::kFileNotFound) != nullptr, user);
    const ContextChange* context = capture->streams[0].context_at(100);
    ASSERT_NE(context, nullptr);
    EXPECT_EQ(context->pid, 7);
  }
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

// Without a recorded build-id a copy shows nothing, whatever its mtime.
TEST_F(User, CopyWithoutARecordedIdIsUnsure) {
  map(7, "/bin/a", 0, {});
  r.writer.itrace_start(7, 7, Recording::at(10));
  file("/bin/a", 0x11, 0xaa);
  const auto past = std::filesystem::file_time_type::clock::now() - std::chrono::hours(24);
  std::filesystem::last_write_time(r.dir.path() / "perf.data/symfs/bin/a", past);
  open();
  EXPECT_EQ(at(kCode, 100), std::vector<Bytes>{{0x11}});
  EXPECT_TRUE(is_unsure(kCode, 100));
  EXPECT_NE(find_notice(*capture, Code::kFileNotVerified), nullptr);
}

// The file at its own path shows by its ctime that it is the one that ran.
TEST_F(User, FileWhereItRanIsCertainWhileItDoesNotChange) {
  const TempDir here;
  const std::string path = (here / "program").string();
  write_bytes(path, program(0x11, 0xaa));
  map(7, path, 0, {});
  r.writer.itrace_start(7, 7, Recording::at(10));
  CaptureOptions options = closed_options();
  options.host_files = true;
  const auto wait = [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  };  // file times can be coarse
  wait();
  open(options);
  EXPECT_EQ(at(kCode, 100), std::vector<Bytes>{{0x11}});
  EXPECT_FALSE(is_unsure(kCode, 100));

  // A package of another day was unpacked over it: its mtime is as old as the package.
  wait();
  write_bytes(path, program(0x22, 0xbb));
  std::filesystem::last_write_time(path,
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours(24));
  auto again = open_capture((r.dir / "perf.data").string(), options);
  ASSERT_TRUE(again.has_value());
  capture.emplace(std::move(*again));
  EXPECT_EQ(at(kCode, 100), std::vector<Bytes>{{0x22}});
  EXPECT_TRUE(is_unsure(kCode, 100));
  EXPECT_EQ(find_notice(*capture, Code::kFileNewerThanRecording), nullptr);
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

// perf's copy of a file has the breakpoints of the uprobes that were set when it was made.
TEST_F(User, FileComesBeforeItsCopyInTheBuildIdCache) {
  const std::string hex(38, 'a');
  write_bytes(r.dir.path() / ("cache/.build-id/aa/" + hex + "/elf"), program(0xcc, 0xaa));
  file("/bin/a", 0x11, 0xaa);
  file("/bin/replaced", 0x22, 0xbb);
  map(7, "/bin/a", 0xaa, {});
  map(7, "/bin/replaced", 0xaa, {}, kCode + 0x10000);
  r.writer.itrace_start(7, 7, Recording::at(10));
  CaptureOptions options = closed_options();
  options.buildid_dir = (r.dir / "cache").string();
  options.force = true;
  open(options);
  EXPECT_EQ(at(kCode, 100), std::vector<Bytes>{{0x11}});
  EXPECT_EQ(at(kCode + 0x10000, 100), std::vector<Bytes>{{0xcc}});
  EXPECT_EQ(find_notice(*capture, Code::kOtherBuildIdUsed), nullptr);
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

// Of "[uprobes-trampoline]" the kernel writes 15 characters.
TEST_F(User, FromTheTrampolineOfUprobesOnTextIsUnsure) {
  file("/bin/a", 0x11, 0xaa);
  map(7, "/bin/a", 0xaa, Recording::at(50, 0, 7, 7));
  MmapSpec trampoline{
      .pid = 7, .tid = 7, .addr = kCode - 0x2000, .len = 0x1000, .pgoff = 0, .filename = "[uprobes-trampo"};
  r.writer.mmap2(trampoline, Recording::at(200, 0, 7, 7));
  r.writer.itrace_start(7, 7, Recording::at(10));
  open();
  EXPECT_FALSE(unsure_at(*capture, space_at(100), kCode, 100));
  EXPECT_TRUE(unsure_at(*capture, space_at(210), kCode, 210));
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
