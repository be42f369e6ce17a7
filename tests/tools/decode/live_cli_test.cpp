// perf record -o - | asof decode -: whatever the pipe is cut into, what comes out is what the whole recording gives, and
// most of it comes before the end.
#include <iterator>
#include <sstream>

#include "tests/support/captures_of.h"
#include "tests/tools/decode/live_recordings.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

class LiveCli : public testing::Test {
 protected:
  // Frames of demo-arm64 are in one AUX record, so that none of it can be given out early.
  std::vector<LiveRecording> recordings() {
    return {demo("demo", 0.3), demo("demo-arm64", 0),
            machine(dir_, "machine-6.12", "kernel-tailcall.tar.xz", 0.1),
            machine(dir_, "machine-6.12-arm64", "user-true.tar.xz", 0.1)};
  }
  // What is in it after the fact, and with whatever pieces.
  void expect_same(std::span<const uint8_t> pipe, const LiveRecording& r, std::mt19937& random,
                   const std::string& what) {
    const Ran whole = after_the_fact(pipe, r), live = piece_by_piece(pipe, r, random);
    EXPECT_EQ(live.status, whole.status) << what << live.err;
    EXPECT_TRUE(live.out == whole.out) << what << live.err;
  }
  TempDir dir_;
};

TEST_F(LiveCli, PiecesOfAnySizeGiveTheSame) {
  std::mt19937 random(26);
  for (const LiveRecording& r : recordings()) {
    if (r.name == "machine-6.12-arm64") continue;  // 800 KB in such pieces take long
    for (const Time skew : {0, 40'000}) {
      const LivePipe pipe = as_live_pipe(r.path, 24, r.capture, skew);
      expect_same(pipe.bytes, r, random, r.name);
    }
  }
}

// While perf goes on, what is settled is there.
TEST_F(LiveCli, GivesOutBeforeTheEnd) {
  for (const LiveRecording& r : recordings()) {
    const LivePipe pipe = as_live_pipe(r.path, 24, r.capture);
    const Ran whole = after_the_fact(pipe.bytes, r);
    ASSERT_EQ(whole.status, 0) << whole.err;
    ASSERT_GT(whole.out.size(), 10'000U) << r.name;
    LiveProgram live(arguments(r));
    const size_t most = pipe.round_ends[pipe.round_ends.size() - 2];
    live.write(std::span(pipe.bytes).first(most));
    const auto early = static_cast<size_t>(r.early * static_cast<double>(whole.out.size()));
    EXPECT_TRUE(live.wait_for_output(early))
        << r.name << ": " << live.output().size() << " of " << whole.out.size();
    EXPECT_TRUE(whole.out.starts_with(live.output())) << r.name;
    live.write(std::span(pipe.bytes).subspan(most));
    const Ran ran = live.end();
    EXPECT_TRUE(ran.out == whole.out) << r.name << ran.err;
    EXPECT_NE(ran.err.find(r.early == 0 ? "nothing was given out" : "of the trace was given out"),
              std::string::npos)
        << ran.err;
  }
}

// Frames of several AUX records: each opening goes on where the last one was.
TEST_F(LiveCli, TraceInFrames) {
  const LiveRecording r = machine(dir_, "machine-6.12-arm64", "user-true.tar.xz", 0.1);
  const LivePipe pipe = as_live_pipe(r.path, 24, r.capture, 0, true);
  const Ran whole = after_the_fact(pipe.bytes, r);
  ASSERT_EQ(whole.status, 0) << whole.err;
  ASSERT_GT(whole.out.size(), 10'000U);
  LiveProgram live(arguments(r));
  for (size_t k = 0; k + 1 < pipe.round_ends.size(); ++k) {
    const size_t begin = k == 0 ? 0 : pipe.round_ends[k - 1];
    live.write(std::span(pipe.bytes).subspan(begin, pipe.round_ends[k] - begin));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_TRUE(live.wait_for_output(static_cast<size_t>(r.early * static_cast<double>(whole.out.size()))));
  live.write(std::span(pipe.bytes).subspan(pipe.round_ends[pipe.round_ends.size() - 2]));
  const Ran ran = live.end();
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_TRUE(ran.out == whole.out) << ran.err;
  EXPECT_NE(ran.err.find("of the trace was given out"), std::string::npos) << ran.err;
}

// perf is killed: the pipe ends anywhere.
TEST_F(LiveCli, PipesThatEndAnywhere) {
  std::mt19937 random(27);
  const LiveRecording r = demo("demo", 0);
  const LivePipe pipe = as_live_pipe(r.path, 24, r.capture);
  for (int i = 0; i < 12; ++i) {
    const size_t end = i == 0 ? 0 : i == 1 ? 9 : random() % pipe.bytes.size();
    expect_same(std::span(pipe.bytes).first(end), r, random, std::to_string(end));
  }
}

// Sizes that lie, and bytes that are not what was written.
TEST_F(LiveCli, DamagedPipes) {
  std::mt19937 random(28);
  const LiveRecording r = demo("demo", 0);
  const LivePipe sound = as_live_pipe(r.path, 24, r.capture);
  const int pipes = static_cast<int>(std::max<uint64_t>(captures_of(24), 6));
  for (int i = 0; i < pipes; ++i) {
    LivePipe pipe = sound;
    const size_t at = random() % pipe.bytes.size();
    if (i % 3 == 0)
      pipe.bytes.erase(pipe.bytes.begin() + static_cast<ptrdiff_t>(at),
                       pipe.bytes.begin() + static_cast<ptrdiff_t>(std::min(at + 40, pipe.bytes.size())));
    else if (i % 3 == 1)
      pipe.bytes[pipe.round_ends[static_cast<size_t>(i) % 24] + 6 - (i % 2 == 0 ? 8 : 0)] =
          static_cast<uint8_t>(random());
    else
      pipe.bytes[at] ^= static_cast<uint8_t>(1 + random() % 255);
    const Ran whole = after_the_fact(pipe.bytes, r), live = piece_by_piece(pipe.bytes, r, random);
    // Records that change what was given out are told of.
    if (live.err.find("E-SIDE-303 standard input: records after") != std::string::npos) {
      EXPECT_EQ(live.status, 3);
      continue;
    }
    EXPECT_EQ(live.status, whole.status) << i << live.err;
    EXPECT_TRUE(live.out == whole.out) << i << live.err;
  }
}

// A change of text that finds other bytes than those that ran: what ran before is not what it seemed.
TEST_F(LiveCli, LaterRecordsThatChangeThePast) {
  const LiveRecording r = demo("demo", 0);
  const LivePipe sound = as_live_pipe(r.path, 24, r.capture);
  const Ran whole = after_the_fact(sound.bytes, r);
  // The last TEXT_POKE, again and elsewhere: in the first kernel code that ran.
  const auto number = [&](const std::vector<uint8_t>& bytes, size_t at, int size) {
    uint64_t out = 0;
    for (int i = 0; i < size; ++i) out |= uint64_t{bytes[at + static_cast<size_t>(i)]} << (8 * i);
    return out;
  };
  size_t poke = 0;
  for (size_t at = 16; at + 8 <= sound.bytes.size();) {
    const uint64_t type = number(sound.bytes, at, 4), size = number(sound.bytes, at + 6, 2);
    if (type == 20) poke = at;
    at += size + (type == 71 ? number(sound.bytes, at + 8, 8) : 0);
  }
  ASSERT_NE(poke, 0U);
  std::vector<uint8_t> record(
      sound.bytes.begin() + static_cast<ptrdiff_t>(poke),
      sound.bytes.begin() + static_cast<ptrdiff_t>(poke + number(sound.bytes, poke + 6, 2)));
  const size_t kernel = whole.out.find(" ffffffff81");
  ASSERT_NE(kernel, std::string::npos);
  const uint64_t ip = std::stoull(whole.out.substr(kernel + 1, 16), nullptr, 16);
  for (size_t i = 0; i < 8; ++i) record[8 + i] = static_cast<uint8_t>(ip >> (8 * i));
  record[20] ^= 0xff;  // the first of the bytes before
  LiveProgram live(arguments(r));
  const size_t most = sound.round_ends[sound.round_ends.size() - 2];
  live.write(std::span(sound.bytes).first(most));
  EXPECT_TRUE(live.wait_for_output(whole.out.size() / 5));
  live.write(record);
  live.write(std::span(sound.bytes).subspan(most));
  const Ran ran = live.end();
  EXPECT_EQ(ran.status, 3) << ran.err;
  EXPECT_NE(ran.err.find("records after"), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("change text from 0xffffffff"), std::string::npos) << ran.err;
}

// Ctrl-C goes to perf and asof; perf ends, and asof finishes what perf has recorded.
TEST_F(LiveCli, InterruptIsForTheRecorder) {
  const LiveRecording r = demo("demo", 0);
  const LivePipe pipe = as_live_pipe(r.path, 24, r.capture);
  const Ran whole = after_the_fact(pipe.bytes, r);
  LiveProgram live(arguments(r));
  const size_t most = pipe.round_ends[pipe.round_ends.size() - 2];
  live.write(std::span(pipe.bytes).first(most));
  EXPECT_TRUE(live.wait_for_output(1000));
  ASSERT_EQ(::kill(live.pid(), SIGINT), 0);
  live.write(std::span(pipe.bytes).subspan(most));
  const Ran ran = live.end();
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_TRUE(ran.out == whole.out) << ran.err;
}

// A directory that perf is writing.
class GrowingCapture {
 public:
  GrowingCapture(const fs::path& folder, const LiveRecording& r, const LivePipe& pipe)
      : pipe_(pipe), file_(folder / "data") {
    fs::create_directory(folder);
    fs::create_directory_symlink(fs::absolute(r.path + "/kcore_dir"), folder / "kcore_dir");
    fd_ = ::open(file_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    put(pipe.file_begin, 0);
  }
  ~GrowingCapture() { ::close(fd_); }
  // Up to there of the pipe.
  void grow(size_t end) {
    put(std::span(pipe_.bytes).subspan(at_, end - at_), pipe_.file_begin.size() + at_ - pipe_.data_begin);
    at_ = end;
  }
  void finish() {
    grow(pipe_.bytes.size());
    put(pipe_.file_end, pipe_.file_begin.size() + at_ - pipe_.data_begin);
    put(pipe_.finished_begin, 0);
  }
  void kill() {
    ::close(fd_);
    fd_ = -1;
  }

  const fs::path& file() const { return file_; }

 private:
  void put(std::span<const uint8_t> bytes, size_t at) {
    EXPECT_EQ(::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(at)),
              static_cast<ssize_t>(bytes.size()));
  }
  const LivePipe& pipe_;
  const fs::path file_;
  size_t at_ = pipe_.data_begin;
  int fd_ = -1;
};

std::string follow(const std::string& folder, const std::string& machine) {
  return "decode -F ip,sym,conf,time --itrace=cre --ns --same-machine " + machine + " -i " + folder;
}

std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

// Files say at their end what user code is: all of it waits.
TEST_F(LiveCli, FilesThatGrowGiveTheSame) {
  std::mt19937 random(29);
  const LiveRecording r = demo("demo", 0);
  const LivePipe pipe = as_live_pipe(r.path, 24, r.capture);
  for (const bool killed : {false, true}) {
    const std::string folder = dir_.path() / (killed ? "killed" : "ended");
    GrowingCapture growing(folder, r, pipe);
    std::vector<std::string> arguments = words(follow(folder, r.path));
    arguments.emplace_back("--follow");
    LiveProgram live(arguments);
    for (size_t at = pipe.data_begin; at < pipe.bytes.size() - 100;
         at = std::min(pipe.bytes.size() - 100, at + random() % 5000)) {
      growing.grow(at);
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 20));
    }
    live.wait_until_open(growing.file());
    if (killed)
      growing.kill();
    else
      growing.finish();
    const Ran ran = live.end();
    const Ran whole = run_asof(follow(folder, r.path));
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_TRUE(ran.out == whole.out) << ran.err;
    EXPECT_GT(ran.out.size(), 1000U);
    // Why is only known where it was looked at before it was whole.
    const size_t said = ran.err.find("nothing was given out");
    ASSERT_NE(said, std::string::npos) << ran.err;
    const std::string why = ran.err.substr(said, ran.err.find('\n', said) - said);
    EXPECT_TRUE(why == "nothing was given out" || why.find(": a file has the build-ids") != std::string::npos)
        << why;
  }
}

// Of the kernel alone, with what its machine is from another recording, it is given out as from a pipe.
TEST_F(LiveCli, FilesOfTheKernelAreGivenOutBeforeTheEnd) {
  const LiveRecording r{"vpt-612", shared("captures/vpt-612/kernel.data"), {}, {}};
  if (!fs::exists(r.path)) GTEST_SKIP() << "no " << r.path;
  const LivePipe pipe = as_live_pipe(r.path, 24, r.capture);
  const std::string folder = dir_.path() / "kernel";
  GrowingCapture growing(folder, r, pipe);
  std::vector<std::string> arguments = words(follow(folder, r.path));
  arguments.emplace_back("--follow");
  LiveProgram live(arguments);
  growing.grow(pipe.round_ends[pipe.round_ends.size() - 2]);
  EXPECT_TRUE(live.wait_for_output(10'000));
  growing.finish();
  const Ran ran = live.end();
  const Ran whole = run_asof(follow(folder, r.path));
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_TRUE(ran.out == whole.out) << ran.err;
  EXPECT_NE(ran.err.find("of the trace was given out"), std::string::npos) << ran.err;
}

}  // namespace
}  // namespace asof::test
