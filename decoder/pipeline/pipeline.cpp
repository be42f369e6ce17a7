#include "decoder/pipeline/pipeline.h"

#include <tbb/blocked_range.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "decoder/io/ordered.h"
#include "decoder/pipeline/continued.h"
#include "decoder/pipeline/decoders.h"
#include "decoder/pipeline/plan.h"
#include "decoder/pipeline/unjudged.h"

namespace asof {
namespace {

constexpr uint64_t kDefaultWaiting = 256ULL << 20;
// Parts of a quarter of a megabyte, of all streams together.
constexpr uint64_t kMostAhead = 256;

struct Delivery {
  size_t worker = 0;  // that filled it
  Chunk chunk;
  std::unique_ptr<ChunkConsumer::Prepared> prepared;
};

uint64_t bytes_of(const Chunk& c) {
  return c.steps.bytes() + c.events.capacity() * sizeof(Event) + c.gaps.capacity() * sizeof(Gap) +
         c.calls.capacity();
}

uint64_t bytes_of(const Delivery& d) {
  return bytes_of(d.chunk) + (d.prepared ? d.prepared->bytes() : 0) + sizeof(Delivery);
}

// Chunks of one worker that were delivered, to be filled again by the same one, whose caches hold them. Most
// chunks are delivered by another thread than the one that fills them; without this every one would need
// fresh pages from the system.
class SpareChunks {
 public:
  Chunk take() {
    const std::lock_guard lock(mutex_);
    if (chunks_.empty()) return {};
    Chunk chunk = std::move(chunks_.back());
    chunks_.pop_back();
    bytes_ -= bytes_of(chunk);
    return chunk;
  }
  void give(Chunk&& chunk) {
    chunk.clear();
    const uint64_t bytes = bytes_of(chunk);
    const std::lock_guard lock(mutex_);
    if (bytes_ + bytes > kMost) return;
    chunks_.push_back(std::move(chunk));
    bytes_ += bytes;
  }

 private:
  static constexpr uint64_t kMost = 4 << 20;

  std::mutex mutex_;
  std::vector<Chunk> chunks_;
  uint64_t bytes_ = 0;  // of them
};

// Orders what was written before and in the bodies of for_each_index(). The library's own joins do the same, but thread
// sanitizer does not see them; nor may a body look at what it captured before.
void hand_over() {
  static std::atomic<uint64_t> passes = 0;
  passes.fetch_add(1, std::memory_order_acq_rel);
}

// body(i) for all i below n, in parallel.
template <class Body>
void for_each_index(tbb::task_arena& arena, size_t n, Body&& body) {
  std::atomic<bool> thrown_by_body = false;
  const auto one = [&](size_t i) {
    try {
      body(i);
    } catch (...) {
      thrown_by_body = true;
      throw;
    }
    hand_over();
  };
  hand_over();
  try {
    arena.execute([&] {
      tbb::parallel_for(
          tbb::blocked_range<size_t>(0, n, 1),
          [&](const tbb::blocked_range<size_t>& r) {
            hand_over();
            for (size_t i = r.begin(); i != r.end(); ++i) one(i);
          },
          tbb::simple_partitioner());
    });
  } catch (const std::runtime_error& error) {
    if (thrown_by_body) throw;
    // oneTBB has no other way to say that it cannot start a thread.
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again), error.what());
  }
  hand_over();
}

// More workers than CPUs are allowed on request: results do not depend on it, and tests use it. TBB has one limit for the
// process. Each reader has an arena of its own size; a limit of each would be one of all that read beside it, and TBB
// would say so on standard error.
void allow_threads(unsigned jobs) {
  static std::mutex mutex;
  static unsigned most = std::max(1U, std::thread::hardware_concurrency());
  static std::unique_ptr<tbb::global_control> allowed;
  const std::lock_guard lock(mutex);
  if (jobs <= most) return;
  most = jobs;
  // Of two that live the lesser one holds: until the old one is gone.
  allowed = std::make_unique<tbb::global_control>(tbb::global_control::max_allowed_parallelism, jobs);
}

// How much trace a worker takes at a time. Less where steps wait for delivery: the more of them wait, the
// more of the memory that is written next is not in a cache.
uint64_t pack_bytes_of(const Arch& arch, const ChunkConsumer& consumer, unsigned jobs) {
  constexpr uint64_t kMostWaiting = 32 << 10;
  if (jobs == 1) return 0;
  return consumer.delivers_steps() ? std::min(arch.preferred_batch_bytes(), kMostWaiting)
                                   : arch.preferred_batch_bytes();
}

// Everything that workers share.
class Decoding {
 public:
  Decoding(const Capture& capture, ChunkConsumer& consumer, SegmentPlan& plan, size_t workers,
           uint64_t pack_bytes, uint64_t max_memory,
           const std::function<void(const PipelineProgress&)>& progress)
      : capture_(capture),
        consumer_(consumer),
        plan_(plan),
        progress_(progress),
        pack_bytes_(pack_bytes),
        scanned_ahead_(
            std::min<uint64_t>(2 * workers, kMostAhead / std::max<size_t>(1, capture.streams.size()))),
        spares_(workers),
        ordered_(max_memory, [this](Delivery& d) {
          if (!consumer_.stopped())
            consumer_.deliver(d.chunk, capture_.streams[d.chunk.stream], d.prepared.get());
          if (consumer_.delivers_steps()) spares_[d.worker].give(std::move(d.chunk));
        }) {}

  // Determines how many workers there is work for, up to `most`.
  size_t look_ahead(size_t most) {
    while (first_.size() < most) {
      auto segment = plan_.next();
      if (!segment) break;
      first_.push_back(*std::move(segment));
    }
    return first_.size();
  }

  void work(size_t worker, SegmentDecoder& decoder);
  // After all work.
  void finish() {
    if (progress_ && !consumer_.stopped()) progress_({plan_.trace_bytes(), plan_.trace_bytes()});
  }

 private:
  class Sink;
  // Segments that follow each other, for one worker (Arch::preferred_batch_bytes). None: that was all.
  struct Pack {
    size_t item = 0;
    std::vector<Segment> segments;
  };

  Pack take() {
    if (spares_.size() > 1) plan_.scan_ahead(scanned_ahead_);
    const std::lock_guard lock(plan_mutex_);
    Pack pack{next_++, {}};
    // Of a short trace every worker gets a part.
    const size_t most = std::max<size_t>(1, taken_ / (4 * spares_.size()));
    uint64_t bytes = 0;
    do {
      auto segment = next_segment();
      if (!segment) break;
      bytes += segment->end - segment->begin;
      pack.segments.push_back(*std::move(segment));
    } while (bytes < pack_bytes_ && pack.segments.size() < most);
    taken_ += pack.segments.size();
    return pack;
  }
  std::optional<Segment> next_segment() {
    if (first_.empty()) return plan_.next();
    std::optional<Segment> out = std::move(first_.front());
    first_.pop_front();
    return out;
  }
  void advance(const Segment& s) {
    const uint64_t done = done_bytes_ += s.end - s.begin;
    if (!progress_) return;
    const std::lock_guard lock(progress_mutex_);
    progress_({done, plan_.trace_bytes()});
  }

  const Capture& capture_;
  ChunkConsumer& consumer_;
  SegmentPlan& plan_;
  const std::function<void(const PipelineProgress&)>& progress_;
  const uint64_t pack_bytes_;
  const size_t scanned_ahead_;       // SegmentPlan::scan_ahead()
  std::vector<SpareChunks> spares_;  // by worker
  Ordered<Delivery> ordered_;
  std::mutex plan_mutex_, progress_mutex_;
  std::deque<Segment> first_;
  size_t next_ = 0;   // item
  size_t taken_ = 0;  // segments
  std::atomic<uint64_t> done_bytes_{0};
};

class Decoding::Sink final : public ChunkSink {
 public:
  Sink(Decoding& run, size_t worker, size_t item, const Segment& segment)
      : run_(run), worker_(worker), item_(item), segment_(segment) {}
  Chunk spare() override { return run_.spares_[worker_].take(); }
  void take(Chunk&& chunk) override {
    if (run_.consumer_.stopped()) return;
    chunk.segment_start = segment_.start_time;
    chunk.segment_begin = segment_.begin;
    chunk.segment_end = segment_.end;
    Delivery d{worker_, std::move(chunk), nullptr};
    d.prepared = run_.consumer_.prepare(d.chunk, run_.capture_.streams[d.chunk.stream]);
    if (!run_.consumer_.delivers_steps()) {
      Chunk next;
      d.chunk.steps.give_codes(next.steps);
      run_.spares_[worker_].give(std::move(next));
    }
    const uint64_t bytes = bytes_of(d);
    run_.ordered_.give(item_, std::move(d), bytes);
  }

 private:
  Decoding& run_;
  const size_t worker_;
  const size_t item_;
  const Segment& segment_;
};

void Decoding::work(size_t worker, SegmentDecoder& decoder) {
  while (!consumer_.stopped()) {
    const Pack pack = take();
    for (const Segment& segment : pack.segments) {
      if (consumer_.stopped()) break;
      Sink sink(*this, worker, pack.item, segment);
      decoder.decode(segment, sink);
      plan_.forget_passed(segment);
      advance(segment);
    }
    ordered_.finish(pack.item);  // others may wait for that, even when no more output is wanted
    if (pack.segments.empty()) return;
  }
}

}  // namespace

Result<Decoders> Decoders::of(const Capture& capture, const DecodeOptions& options) {
  auto arch = capture.arch();
  if (!arch) return std::unexpected(arch.error());
  return Decoders(capture, *std::move(arch), options);
}

void Decoders::provide(size_t workers) {
  while (decoders_.size() < workers) {
    auto decoder = arch_->decoder(capture_->streams, *capture_->text, options_);
    decoders_.push_back(is_unjudged(options_) ? unjudged(std::move(decoder)) : std::move(decoder));
  }
}

void run_pass(Decoders& decoders, const PipelineOptions& options, const std::vector<Time>& reached,
              ChunkOrder order, ChunkConsumer& consumer,
              const std::function<void(const PipelineProgress&)>& progress) {
  const unsigned jobs = options.jobs != 0 ? options.jobs : std::max(1U, std::thread::hardware_concurrency());
  allow_threads(jobs);
  tbb::task_arena arena(static_cast<int>(jobs));
  SegmentPlan plan(decoders.arch(), decoders.capture(), options, order, reached);
  Decoding run(decoders.capture(), consumer, plan, jobs, pack_bytes_of(decoders.arch(), consumer, jobs),
               options.max_memory != 0 ? options.max_memory : kDefaultWaiting, progress);
  const size_t workers = std::max<size_t>(1, run.look_ahead(jobs));
  decoders.provide(workers);
  try {
    for_each_index(arena, workers, [&](size_t i) { run.work(i, decoders[i]); });
  } catch (...) {
    consumer.finished(std::current_exception());
    throw;
  }
  run.finish();
  consumer.finished(nullptr);
}

Result<void> run_pipeline(const Capture& capture, const PipelineOptions& options, ChunkOrder order,
                          ChunkConsumer& consumer,
                          const std::function<void(const PipelineProgress&)>& progress) {
  return continue_pipeline(capture, options, {}, order, consumer, progress);
}

Result<void> continue_pipeline(const Capture& capture, const PipelineOptions& options,
                               const std::vector<Time>& reached, ChunkOrder order, ChunkConsumer& consumer,
                               const std::function<void(const PipelineProgress&)>& progress) {
  auto decoders = Decoders::of(capture, options.decode);
  if (!decoders) return std::unexpected(decoders.error());
  run_pass(*decoders, options, reached, order, consumer, progress);
  return {};
}

}  // namespace asof
