#include "arch/forked_decoder.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>

#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "arch/child.h"

namespace asof {
namespace {

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
    write_answer(fd_, out.data(), out.size());
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
  ChunkReader(Child& child, BlockPool& pool) : child_(child), pool_(pool) {}

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

 private:
  template <class T>
  bool get(T& value) {
    return child_.read(&value, sizeof value);
  }
  bool get_text(std::string& text, size_t size) {
    text.resize(size);
    return child_.read(text.data(), size);
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

  Child& child_;
  BlockPool& pool_;
  std::vector<const Block*> blocks_;  // by number
};

class ForkedDecoder final : public SegmentDecoder {
 public:
  ForkedDecoder(std::unique_ptr<SegmentDecoder> decoder, std::string_view name)
      : decoder_(std::move(decoder)), name_(name) {}

  void decode(const Segment& segment, ChunkSink& sink) override {
    if (run_here) return decoder_->decode(segment, sink);
    Child child([&](int fd) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // the thread that made it waits for it
      ChunkWriter writer(fd);
      decoder_->decode(segment, writer);
    });
    ChunkReader reader(child, pool_);
    bool first = true;
    for (;;) {
      Chunk chunk;
      chunk.stream = segment.stream;
      chunk.segment = segment.index;
      if (!reader.read(chunk)) return lost(segment, sink, first, child.what_happened());
      const bool last = chunk.last;
      first = false;
      sink.take(std::move(chunk));
      if (last) return;
    }
  }

 private:
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
