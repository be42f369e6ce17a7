// What a pipe takes on the disk while it is decoded: what was given out gives its room back.
#include <fcntl.h>
#include <sys/stat.h>

#include "decoder/perf/perf_data_input.h"
#include "tests/support/assembler.h"
#include "tests/support/capture_builder.h"
#include "tests/support/effort.h"
#include "tests/support/etm_demo.h"
#include "tests/tools/decode/live_recordings.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

uint64_t bytes_on_disk(const struct stat& info) { return static_cast<uint64_t>(info.st_blocks) * 512; }

// Where asof would put it.
bool gives_room_back() {
  auto spool = Spool::create();
  const std::vector<uint8_t> bytes(1 << 20, 1);
  struct stat before {
  }, after{};
  return spool && spool->append(bytes) && spool->flush() && ::fsync(spool->fd()) == 0 &&
         ::fstat(spool->fd(), &before) == 0 &&
         ::fallocate(spool->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 19) == 0 &&
         ::fstat(spool->fd(), &after) == 0 && bytes_on_disk(after) < bytes_on_disk(before);
}

// Of the files without a name that the process has open.
uint64_t spooled(pid_t pid) {
  uint64_t out = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd", ignored)) {
    struct stat info {};
    if (::stat(entry.path().c_str(), &info) == 0 && S_ISREG(info.st_mode) && info.st_nlink == 0)
      out += bytes_on_disk(info);
  }
  return out;
}

// A program that calls functions far from each other: little but trace.
class Calls {
 public:
  Calls() : user_(kUser) {
    user_.function("_start").endbr64().straight(3);
    user_.label("again").straight(1).label("call").call_rax().straight(1).jmp8("again");
    user_.function("one").straight(1).ret();
    for (int i = 0; i < 40; ++i) user_.straight(60);
    user_.function("two").straight(2).ret();
    MachineConfig config;
    config.cpus = 1;
    config.trace.kernel = false;
    config.trace.psb_bytes = 2048;
    config.keep_instructions = false;
    machine_ = std::make_unique<Machine>(config);
    text_ = user_.finish();
    machine_->memory().load(1, kUser, text_);
    machine_->on_indirect(user_.address("call"),
                          [this](SimCpu&) { return user_.address(++calls_ % 3 == 0 ? "one" : "two"); });
  }
  LiveRecording write(const fs::path& directory) {
    SimTask& task = machine_->add_task(kPid, kPid, "calls", 1, kUser, kText);
    machine_->run_task(0, task, kUser);
    machine_->start_trace(0);
    machine_->run_until(machine_->config().tsc_start + kMicroseconds * kTicks);
    machine_->stop_trace(0);
    CaptureSpec spec;
    spec.kcore = {{kText, std::vector<uint8_t>(0x1000, 0xcc)}};
    spec.text_begin = kText, spec.text_end = kText + 0x1000;
    spec.symbols = {
        {kText, 'T', "_text", ""}, {kText, 'T', "_stext", ""}, {kText + 0x1000, 'T', "_etext", ""}};
    UserProgram p;
    p.path = "/opt/calls";
    p.elf = {.address = kUser, .text = text_, .build_id = std::vector<uint8_t>(20, 0x5a)};
    p.pids = {kPid};
    spec.programs.push_back(p);
    write_capture(*machine_, spec, directory, "calls");
    LiveRecording r{"calls", directory / "perf.data", {}, {}, 0};
    r.capture.symfs = directory / "symfs";
    r.options = {"-F",      "ip,conf,time", "--itrace=c", "--ns", "--kcore", r.path + "/kcore_dir/kcore",
                 "--symfs", r.capture.symfs};
    return r;
  }

 private:
  static constexpr Addr kText = 0xffffffff81000000, kUser = 0x401000;
  static constexpr int32_t kPid = 4242;
  static constexpr uint64_t kMicroseconds = 6000, kTicks = 2400;
  Assembler user_;
  std::vector<uint8_t> text_;
  std::unique_ptr<Machine> machine_;
  uint64_t calls_ = 0;
};

// Decoded to its end, with room for no more than `most` of all but the last round at the end of that.
void check_room(const LiveRecording& r, const LivePipe& pipe, size_t early, size_t most_room) {
  const Ran whole = after_the_fact(pipe.bytes, r);
  ASSERT_EQ(whole.status, 0) << whole.err;
  LiveProgram live(arguments(r));
  const size_t most = pipe.round_ends[pipe.round_ends.size() - 2];
  ASSERT_GT(most, 2 * most_room);
  live.write(std::span(pipe.bytes).first(most));
  EXPECT_TRUE(live.wait_for_output(whole.out.size() * early / 100));
  // It gives room back after it has written. One that does not meets the limit of all tests.
  while (spooled(live.pid()) > most_room) {
    live.take();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  live.write(std::span(pipe.bytes).subspan(most));
  const Ran ran = live.end();
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_TRUE(ran.out == whole.out) << ran.err;
}

TEST(LiveSpool, TakesRoomForWhatWaits) {
  if (!gives_room_back()) GTEST_SKIP() << "the file system of the temporary folder keeps all";
  const TempDir dir;
  const LiveRecording r = Calls().write(dir.path());
  const LivePipe pipe = as_live_pipe(r.path, 48, r.capture);
  check_room(r, pipe, 80, pipe.bytes.size() / 2 - pipe.bytes.size() / 20);
}

// 4 MiB of each CPU stay, so there is more.
TEST(LiveSpool, TakesRoomForWhatWaitsOfFrames) {
  if (kSanitized) GTEST_SKIP() << "30 MB of trace: minutes under a sanitizer";
  if (!gives_room_back()) GTEST_SKIP() << "the file system of the temporary folder keeps all";
  const TempDir dir;
  EtmDemoOptions options;
  options.microseconds = 160'000;
  options.unit.sync_bytes = 8192;
  options.frames = options.truth = false;
  write_etm_demo(make_etm_demo(options), dir.path());
  LiveRecording r{"frames", dir.path() / "perf.data", {}, {}, 0};
  r.options = {"-F", "ip", "--itrace=c", "--kcore", r.path + "/kcore_dir/kcore"};
  const LivePipe pipe = as_live_pipe(r.path, 12, r.capture, 0, true);
  check_room(r, pipe, 40, pipe.bytes.size() * 45 / 100);
}

// A record at the end says that the trace was snapshots: it would have to be put together anew.
TEST(LiveSpool, TraceThatIsElsewhereThanItWasIsTold) {
  const TempDir dir;
  const LiveRecording r = Calls().write(dir.path());
  LivePipe pipe = as_live_pipe(r.path, 48, r.capture);
  const size_t most = pipe.round_ends[pipe.round_ends.size() - 2];
  constexpr uint8_t kAux = 11, kOverwrite = 2;
  for (size_t at = most; at + 32 <= pipe.bytes.size();) {
    const size_t size = pipe.bytes[at + 6] + size_t{pipe.bytes[at + 7]} * 256;
    if (pipe.bytes[at] == 71) break;
    if (pipe.bytes[at] == kAux) pipe.bytes[at + 24] |= kOverwrite;
    at += size;
  }
  LiveProgram live(arguments(r));
  live.write(std::span(pipe.bytes).first(most));
  EXPECT_TRUE(live.wait_for_output(5'000'000));
  live.write(std::span(pipe.bytes).subspan(most));
  const Ran ran = live.end();
  EXPECT_EQ(ran.status, 3) << ran.err;
  EXPECT_NE(ran.err.find("E-SIDE-303"), std::string::npos) << ran.err;
}

}  // namespace
}  // namespace asof::test
