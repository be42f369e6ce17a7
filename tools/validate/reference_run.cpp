#include "tools/validate/reference_run.h"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "arch/forked_decoder.h"
#include "arch/x86/reference_sum.h"
#include "decoder/pipeline/plan.h"
#include "tools/output/output.h"

namespace asof {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPatience = std::chrono::seconds(60);  // for one segment
constexpr uint64_t kMostFailures = 64;
constexpr unsigned kMostChildren = 8;

// What a child reports about one segment: through a pipe, so of a fixed size that is written at once.
struct Message {
  uint64_t index = 0, instructions = 0, hash = 0, gap = 0;
};

class Sum final : public ChunkSink {
 public:
  void take(Chunk&& chunk) override {
    Tally tally;
    count_steps(chunk, tally);
    ips.append(tally.ips);
    gap = gap || !chunk.gaps.empty();
  }
  IpHash ips;
  bool gap = false;
};

// One of several children, which takes every `step`-th segment.
struct Child {
  pid_t pid = -1;
  int fd = -1;
  size_t next = 0;  // segment it works on
  Clock::time_point since;
};

class Runner {
 public:
  Runner(const Capture& capture, const Arch& arch, DecodeOptions decode, std::vector<Segment> work,
         ReferenceRun& out)
      : capture_(capture), arch_(arch), decode_(decode), work_(std::move(work)), out_(out) {
    decode_.reference_engine = true;
  }
  ~Runner() {
    for (Child& c : children_) stop(c);
  }

  void run(unsigned children) {
    step_ = std::clamp<size_t>(children, 1, kMostChildren);
    for (size_t i = 0; i < step_ && i < work_.size(); ++i) start(i);
    while (!children_.empty() && !interrupted()) {
      std::vector<pollfd> fds;
      fds.reserve(children_.size());
      for (const Child& c : children_) fds.push_back({c.fd, POLLIN, 0});
      poll(fds.data(), fds.size(), 200);
      for (size_t i = fds.size(); i-- > 0;) {
        const bool ready = fds[i].revents != 0;
        if (ready ? !receive(children_[i]) : Clock::now() - children_[i].since > kPatience) give_up(i);
      }
    }
  }

 private:
  void start(size_t first) {
    int ends[2];
    if (pipe(ends) != 0) return;
    const pid_t pid = fork();
    if (pid == 0) {
      close(ends[0]);
      work(first, ends[1]);
    }
    close(ends[1]);
    if (pid < 0) {
      close(ends[0]);
      return;
    }
    children_.push_back({pid, ends[0], first, Clock::now()});
  }

  // In the child. It has only this one thread, so nothing here may wait for another one.
  [[noreturn]] void work(size_t first, int fd) {
    signal(SIGINT, SIG_DFL);
    const rlimit none{0, 0};  // a crash is expected here: no core file
    setrlimit(RLIMIT_CORE, &none);
    run_foreign_decoders_here();
    const auto decoder = arch_.decoder(capture_.streams, *capture_.text, decode_);
    std::optional<x86::ReferenceSums> sums;
    if (capture_.arm64.sources.empty()) sums.emplace(capture_.x86, capture_.streams, *capture_.text);
    for (size_t i = first; i < work_.size(); i += step_) {
      const Message m = decode(i, sums, *decoder);
      if (write(fd, &m, sizeof m) != static_cast<ssize_t>(sizeof m)) break;
    }
    _exit(0);
  }

  Message decode(size_t i, std::optional<x86::ReferenceSums>& sums, SegmentDecoder& decoder) {
    if (const auto all = sums ? sums->sum(work_[i]) : std::nullopt)
      return {i, all->instructions, all->hash, 0};
    Sum sum;
    decoder.decode(work_[i], sum);
    return {i, sum.ips.count, sum.ips.hash, sum.gap ? 1U : 0U};
  }

  // False when the child is gone.
  bool receive(Child& c) {
    Message m;
    if (read(c.fd, &m, sizeof m) != static_cast<ssize_t>(sizeof m) || m.index >= work_.size()) return false;
    const Segment& s = work_[m.index];
    out_.segments[{s.stream, s.index}] = {m.instructions, m.hash, m.gap != 0, s};
    c.next = m.index + step_;
    c.since = Clock::now();
    return true;
  }

  // The child has ended or hangs: continues after its current segment, if any is left.
  void give_up(size_t i) {
    Child c = children_[i];
    children_.erase(children_.begin() + static_cast<long>(i));
    stop(c);
    if (c.next >= work_.size()) return;
    ++out_.failed;
    if (c.next + step_ < work_.size() && out_.failed < kMostFailures) start(c.next + step_);
  }

  static void stop(Child& c) {
    kill(c.pid, SIGKILL);
    waitpid(c.pid, nullptr, 0);
    close(c.fd);
  }

  const Capture& capture_;
  const Arch& arch_;
  DecodeOptions decode_;
  std::vector<Segment> work_;
  ReferenceRun& out_;
  size_t step_ = 1;
  std::vector<Child> children_;
};

}  // namespace

Result<ReferenceRun> run_reference(const Capture& capture, const PipelineOptions& options, uint64_t bytes) {
  const auto arch = capture.arch();
  if (!arch) return std::unexpected(arch.error());
  PipelineOptions all = options;
  all.time = {};
  SegmentPlan plan(**arch, capture, all, ChunkOrder::kByTime);
  ReferenceRun out;
  std::vector<Segment> work;
  uint64_t sum = 0;
  while (auto segment = plan.next()) {
    sum += segment->end - segment->begin;
    if (sum <= bytes) {
      work.push_back(*std::move(segment));
      continue;
    }
    ++out.left_out;
    plan.forget_passed(*segment);
  }
  Runner runner(capture, **arch, options.decode, std::move(work), out);
  runner.run(options.jobs != 0 ? options.jobs : std::max(1U, std::thread::hardware_concurrency()));
  return out;
}

}  // namespace asof
