#include "arch/forked_decoder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace asof {
namespace {

constexpr int kPatience = 60'000;  // ms without an answer
constexpr uint32_t kLongestReason = 1024, kLongestBlock = 4096;

bool run_here = false;

struct ChunkHead {
  uint64_t steps = 0;
  uint32_t blocks = 0, events = 0, gaps = 0, last = 0;
};
struct BlockHead {
  Addr ip = 0, target = 0;
  Space space = kKernelSpace;
  uint32_t size = 0;
  uint16_t count = 0;
  BranchKind kind = BranchKind::kNone;
  uint8_t mode = 0;
};
struct StepHead {
  Time time = 0;
  uint32_t block = 0, count = 0;
  Confidence confidence = Confidence::kCertain;
  uint8_t flags = 0;
};
struct GapHead {
  uint64_t begin = 0, end = 0;
  TimeBounds time;
  Addr ip = 0, resume_ip = 0;
  uint32_t step = 0, reason = 0;
  Code code = Code::kNone;
};

// In the child: chunks as bytes. Blocks are numbered as they first occur.
class ChunkWriter final : public ChunkSink {
 public:
  explicit ChunkWriter(int fd) : fd_(fd) {}

  void take(Chunk&& chunk) override {
    std::string steps, blocks;
    ChunkHead head;
    for (const Step& s : chunk.steps) {
      const auto [known, fresh] = numbers_.try_emplace(s.block, static_cast<uint32_t>(numbers_.size()));
      if (fresh) {
        put_block(blocks, *s.block);
        ++head.blocks;
      }
      put(steps, StepHead{s.time, known->second, s.count, s.confidence, s.flags});
      ++head.steps;
    }
    head.events = static_cast<uint32_t>(chunk.events.size());
    head.gaps = static_cast<uint32_t>(chunk.gaps.size());
    head.last = chunk.last ? 1 : 0;
    std::string out;
    put(out, head);
    out += blocks;
    out += steps;
    for (const Event& e : chunk.events) put(out, e);
    for (const Gap& g : chunk.gaps) {
      const std::string reason = g.reason.substr(0, kLongestReason);
      put(out, GapHead{g.begin, g.end, g.time, g.ip, g.resume_ip, g.step,
                       static_cast<uint32_t>(reason.size()), g.code});
      out += reason;
    }
    for (size_t done = 0; done < out.size();) {
      const ssize_t n = ::write(fd_, out.data() + done, out.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) _exit(1);
      done += static_cast<size_t>(n);
    }
  }

 private:
  template <class T>
  static void put(std::string& out, const T& value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  static void put_block(std::string& out, const Block& b) {
    put(out, BlockHead{b.ip, b.target, b.space, b.size, b.count, b.kind, b.mode});
    out.append(reinterpret_cast<const char*>(b.bytes), b.size);
    out.append(reinterpret_cast<const char*>(b.lengths), b.count);
  }

  int fd_;
  std::unordered_map<const Block*, uint32_t> numbers_;
};

// Blocks that children have told of; as long as the decoder lives.
class BlockPool {
 public:
  const Block* find(const BlockHead& head, const std::string& bytes, const std::string& lengths) {
    auto& same = known_[{head.ip, head.mode}];
    for (const Stored* s : same) {
      if (s->block.space == head.space && s->block.kind == head.kind && s->bytes == bytes &&
          s->lengths == lengths)
        return &s->block;
    }
    Stored& s = stored_.emplace_back(Stored{{}, bytes, lengths});
    Block& b = s.block;
    b.ip = head.ip, b.target = head.target, b.space = head.space;
    b.size = head.size, b.count = head.count, b.kind = head.kind, b.mode = head.mode;
    b.bytes = reinterpret_cast<const uint8_t*>(s.bytes.data());
    b.lengths = reinterpret_cast<const uint8_t*>(s.lengths.data());
    Addr ip = head.ip;
    for (uint32_t i = 0; i < b.count; ip += b.lengths[i++]) {
      b.hash = b.hash * kHashFactor + ip;
      b.power *= kHashFactor;
    }
    same.push_back(&s);
    return &b;
  }

 private:
  struct Stored {
    Block block;
    std::string bytes, lengths;
  };
  std::deque<Stored> stored_;
  std::map<std::pair<Addr, uint8_t>, std::vector<const Stored*>> known_;
};

// What a child says. It may have died in the middle of anything, or gone wrong before that: nothing is believed unseen.
class ChunkReader {
 public:
  ChunkReader(int fd, BlockPool& pool) : fd_(fd), pool_(pool) {}

  bool read(Chunk& chunk) {
    ChunkHead head;
    if (!get(head)) return false;
    for (uint32_t i = 0; i < head.blocks; ++i) {
      if (!read_block()) return false;
    }
    for (uint64_t i = 0; i < head.steps; ++i) {
      StepHead s;
      if (!get(s) || s.block >= blocks_.size() || s.count == 0 || s.count > blocks_[s.block]->count)
        return false;
      Step step;
      step.block = blocks_[s.block];
      step.time = s.time, step.count = s.count, step.confidence = s.confidence, step.flags = s.flags;
      chunk.steps.push_back(step);
    }
    for (uint32_t i = 0; i < head.events; ++i) {
      Event e;
      if (!get(e) || e.kind > EventKind::kCycles || e.step > head.steps) return false;
      chunk.events.push_back(e);
    }
    for (uint32_t i = 0; i < head.gaps; ++i) {
      if (!read_gap(chunk)) return false;
    }
    chunk.last = head.last != 0;
    return true;
  }
  bool timed_out() const { return timed_out_; }

 private:
  template <class T>
  bool get(T& value) {
    return get_bytes(reinterpret_cast<char*>(&value), sizeof value);
  }
  bool get_text(std::string& text, size_t size) {
    text.resize(size);
    return get_bytes(text.data(), size);
  }
  bool get_bytes(char* to, size_t size) {
    while (size > 0) {
      if (at_ == buffer_.size() && !fill()) return false;
      const size_t n = std::min(size, buffer_.size() - at_);
      std::memcpy(to, buffer_.data() + at_, n);
      at_ += n, to += n, size -= n;
    }
    return true;
  }
  bool fill() {
    buffer_.resize(size_t{1} << 16U);
    at_ = 0;
    ssize_t n = -1;
    do {
      pollfd ready{fd_, POLLIN, 0};
      const int come = ::poll(&ready, 1, kPatience);
      timed_out_ = come == 0;
      n = come > 0 ? ::read(fd_, buffer_.data(), buffer_.size()) : -1;
    } while (n < 0 && !timed_out_ && errno == EINTR);
    buffer_.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return n > 0;
  }
  bool read_block() {
    BlockHead head;
    std::string bytes, lengths;
    if (!get(head) || head.count == 0 || head.size > kLongestBlock || head.count > head.size ||
        head.kind > BranchKind::kPaging || !get_text(bytes, head.size) || !get_text(lengths, head.count))
      return false;
    size_t sum = 0;
    for (const char length : lengths) sum += static_cast<uint8_t>(length);
    if (sum != head.size) return false;
    blocks_.push_back(pool_.find(head, bytes, lengths));
    return true;
  }
  bool read_gap(Chunk& chunk) {
    GapHead head;
    Gap g;
    if (!get(head) || head.reason > kLongestReason || !get_text(g.reason, head.reason)) return false;
    g.begin = head.begin, g.end = head.end, g.time = head.time;
    g.ip = head.ip, g.resume_ip = head.resume_ip, g.step = head.step, g.code = head.code;
    chunk.gaps.push_back(std::move(g));
    return true;
  }

  int fd_;
  BlockPool& pool_;
  std::vector<const Block*> blocks_;  // by number
  std::string buffer_;
  size_t at_ = 0;
  bool timed_out_ = false;
};

[[noreturn]] void work(SegmentDecoder& decoder, const Segment& segment, int fd) {
  for (const int s : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGPIPE}) signal(s, SIG_DFL);
  const rlimit none{0, 0};  // a crash is expected here: no core file
  setrlimit(RLIMIT_CORE, &none);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  ChunkWriter writer(fd);
  decoder.decode(segment, writer);
  _exit(0);
}

class ForkedDecoder final : public SegmentDecoder {
 public:
  ForkedDecoder(std::unique_ptr<SegmentDecoder> decoder, std::string_view name)
      : decoder_(std::move(decoder)), name_(name) {}

  void decode(const Segment& segment, ChunkSink& sink) override {
    if (run_here) return decoder_->decode(segment, sink);
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return lost(segment, sink, true, std::strerror(errno));
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::close(ends[0]);
      work(*decoder_, segment, ends[1]);
    }
    const int error = errno;
    ::close(ends[1]);
    if (pid < 0) {
      ::close(ends[0]);
      return lost(segment, sink, true, std::strerror(error));
    }
    take_all(segment, sink, pid, ends[0]);
  }

 private:
  void take_all(const Segment& segment, ChunkSink& sink, pid_t pid, int fd) {
    ChunkReader reader(fd, pool_);
    bool first = true, done = false;
    while (!done) {
      Chunk chunk;
      chunk.stream = segment.stream;
      chunk.segment = segment.index;
      if (!reader.read(chunk)) break;
      done = chunk.last;
      first = false;
      sink.take(std::move(chunk));
    }
    if (!done) ::kill(pid, SIGKILL);
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    ::close(fd);
    if (done) return;
    const bool signal = WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL;
    lost(segment, sink, first,
         reader.timed_out() ? "does not answer"
         : signal           ? fmt::format("crashed (signal {})", WTERMSIG(status))
                            : "ended without an answer");
  }

  // All of the segment, although some may have been delivered: nothing shows where in the trace that ended.
  void lost(const Segment& segment, ChunkSink& sink, bool first, const std::string& why) const {
    Chunk chunk;
    chunk.stream = segment.stream;
    chunk.segment = segment.index;
    chunk.last = true;
    if (first && segment.before) chunk.gaps.push_back(*segment.before);
    Gap g;
    g.begin = segment.begin;
    g.end = segment.end;
    g.time.lo = segment.start_time;
    g.code = Code::kBadPacket;
    g.reason = fmt::format("{} {} on this part of the trace, which it had for itself", name_, why);
    chunk.gaps.push_back(std::move(g));
    sink.take(std::move(chunk));
  }

  std::unique_ptr<SegmentDecoder> decoder_;
  std::string name_;
  BlockPool pool_;
};

}  // namespace

std::unique_ptr<SegmentDecoder> in_children(std::unique_ptr<SegmentDecoder> decoder, std::string_view name) {
  return std::make_unique<ForkedDecoder>(std::move(decoder), name);
}

void run_foreign_decoders_here() { run_here = true; }

}  // namespace asof
