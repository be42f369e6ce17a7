#include "decoder/pipeline.h"

#include <tbb/blocked_range.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include "decoder/ordered.h"

namespace asof {
namespace {

constexpr uint64_t kDefaultWaiting = 256ULL << 20;

struct Delivery {
  Chunk chunk;
  std::unique_ptr<ChunkConsumer::Prepared> prepared;
};

uint64_t bytes_of(const Chunk& c) {
  return c.steps.bytes() + c.events.capacity() * sizeof(Event) + c.gaps.capacity() * sizeof(Gap);
}

uint64_t bytes_of(const Delivery& d) {
  return bytes_of(d.chunk) + (d.prepared ? d.prepared->bytes() : 0) + sizeof(Delivery);
}

// Chunks that were delivered, to be filled again. Most chunks are delivered by another thread than the one
// that fills them; without this every one would be fresh pages from the system.
class SpareChunks {
 public:
  explicit SpareChunks(size_t most) : most_(most) {}
  Chunk take() {
    const std::lock_guard lock(mutex_);
    if (chunks_.empty()) return {};
    Chunk chunk = std::move(chunks_.back());
    chunks_.pop_back();
    return chunk;
  }
  void give(Chunk&& chunk) {
    constexpr uint64_t kMostBytes = 1 << 20;  // more is an exception that nobody needs to keep
    if (bytes_of(chunk) > kMostBytes) return;
    chunk.clear();
    const std::lock_guard lock(mutex_);
    if (chunks_.size() < most_) chunks_.push_back(std::move(chunk));
  }

 private:
  std::mutex mutex_;
  std::vector<Chunk> chunks_;
  const size_t most_;
};

bool wanted(const Stream& s, const PipelineOptions& o) {
  if (!o.cpus.empty() && s.cpu >= 0 && std::ranges::find(o.cpus, s.cpu) == o.cpus.end()) return false;
  if (!o.tids.empty() && s.tid >= 0 && std::ranges::find(o.tids, s.tid) == o.tids.end()) return false;
  return true;
}

// A segment without a time of its own stands at its predecessor's.
void fill_start_times(std::vector<Segment>& segments) {
  Time last = kTimeMin;
  for (Segment& s : segments) last = s.start_time = std::max(last, s.start_time);
}

// Segments that can hold something of [time.lo, time.hi]. Those without any time stay.
void keep_in_time(std::vector<Segment>& segments, TimeBounds time) {
  std::vector<Segment> kept;
  for (size_t i = 0; i < segments.size(); ++i) {
    const Time end = i + 1 < segments.size() ? segments[i + 1].start_time : kTimeMax;
    if (segments[i].start_time > time.hi || (end != kTimeMin && end < time.lo)) continue;
    kept.push_back(std::move(segments[i]));
  }
  segments = std::move(kept);
}

// body(i) for all i below n, in parallel. The lock hands over what was written before and in a body; the
// library's own joins do the same, but thread sanitizer does not see them.
template <class Body>
void for_each_index(tbb::task_arena& arena, size_t n, Body&& body) {
  std::mutex hand_over;
  const auto pass = [&] { const std::lock_guard lock(hand_over); };
  pass();
  arena.execute([&] {
    tbb::parallel_for(
        tbb::blocked_range<size_t>(0, n, 1),
        [&](const tbb::blocked_range<size_t>& r) {
          for (size_t i = r.begin(); i != r.end(); ++i) {
            pass();
            body(i);
            pass();
          }
        },
        tbb::simple_partitioner());
  });
  pass();
}

std::vector<Segment> plan(tbb::task_arena& arena, const Arch& arch, const Capture& capture,
                          const PipelineOptions& options, ChunkOrder order) {
  std::vector<std::vector<Segment>> per_stream(capture.streams.size());
  for_each_index(arena, capture.streams.size(), [&](size_t i) {
    if (!wanted(capture.streams[i], options)) return;
    per_stream[i] = arch.split(capture.streams[i], i);
    fill_start_times(per_stream[i]);
    keep_in_time(per_stream[i], options.time);
  });
  std::vector<Segment> all;
  for (auto& s : per_stream) {
    if (all.empty()) {
      all = std::move(s);
      continue;
    }
    std::ranges::move(s, std::back_inserter(all));
    s = {};
  }
  if (order == ChunkOrder::kByTime) std::ranges::stable_sort(all, {}, &Segment::start_time);
  return all;
}

// Everything that workers share; only `next`, `done_bytes`, `spares` and the Ordered change while they run.
struct Decoding {
  const Capture& capture;
  const std::vector<Segment>& segments;
  ChunkConsumer& consumer;
  const std::function<void(const PipelineProgress&)>& progress;
  SpareChunks& spares;
  Ordered<Delivery> ordered;
  uint64_t total_bytes = 0;
  std::atomic<size_t> next{0};
  std::atomic<uint64_t> done_bytes{0};
  std::mutex progress_mutex{};

  void advance(const Segment& s) {
    const uint64_t done = done_bytes += s.end - s.begin;
    if (!progress) return;
    std::lock_guard lock(progress_mutex);
    progress({done, total_bytes});
  }
};

class WorkerSink final : public ChunkSink {
 public:
  WorkerSink(Decoding& run, size_t item) : run_(run), item_(item) {}
  Chunk spare() override { return run_.spares.take(); }
  void take(Chunk&& chunk) override {
    if (run_.consumer.stopped()) return;
    chunk.segment_start = run_.segments[item_].start_time;
    Delivery d{std::move(chunk), nullptr};
    d.prepared = run_.consumer.prepare(d.chunk, run_.capture.streams[d.chunk.stream]);
    const uint64_t bytes = bytes_of(d);
    run_.ordered.give(item_, std::move(d), bytes);
  }

 private:
  Decoding& run_;
  const size_t item_;
};

constexpr uint64_t kWindow = 8 << 20;

// Memory of trace that is done with: of the whole window before the one that a segment reaches. Another
// worker may still be in it; it reads those pages from the file again.
void forget_trace(const Stream& stream, const Segment& s) {
  const uint64_t reached = s.end / kWindow * kWindow;
  if (s.begin >= reached || reached < kWindow) return;
  const uint64_t window = s.begin / kWindow * kWindow;
  stream.forget(window < kWindow ? 0 : window - kWindow, reached - kWindow);
}

void work(Decoding& run, SegmentDecoder& decoder) {
  for (;;) {
    const size_t i = run.next++;
    if (i >= run.segments.size()) return;
    if (!run.consumer.stopped()) {
      WorkerSink sink(run, i);
      decoder.decode(run.segments[i], sink);
    }
    forget_trace(run.capture.streams[run.segments[i].stream], run.segments[i]);
    run.ordered.finish(i);
    run.advance(run.segments[i]);
  }
}

}  // namespace

Result<void> run_pipeline(const Capture& capture, const PipelineOptions& options, ChunkOrder order,
                          ChunkConsumer& consumer,
                          const std::function<void(const PipelineProgress&)>& progress) {
  auto arch = capture.arch();
  if (!arch) return std::unexpected(arch.error());

  const unsigned jobs = options.jobs != 0 ? options.jobs : std::max(1U, std::thread::hardware_concurrency());
  // More workers than CPUs are allowed when asked for: results do not depend on it, and tests do ask.
  const tbb::global_control allowed(tbb::global_control::max_allowed_parallelism, jobs);
  tbb::task_arena arena(static_cast<int>(jobs));
  const std::vector<Segment> segments = plan(arena, **arch, capture, options, order);

  // From here on capture, text and segments do not change.
  const size_t workers = std::max<size_t>(1, std::min<size_t>(jobs, segments.size()));
  std::vector<std::unique_ptr<SegmentDecoder>> decoders;
  for (size_t i = 0; i < workers; ++i) {
    decoders.push_back((*arch)->decoder(capture.streams, *capture.text, options.decode));
  }
  SpareChunks spares(4 * workers);
  Decoding run{
      capture,
      segments,
      consumer,
      progress,
      spares,
      Ordered<Delivery>(segments.size(), options.max_memory != 0 ? options.max_memory : kDefaultWaiting,
                        [&](Delivery& d) {
                          if (!consumer.stopped()) {
                            consumer.deliver(d.chunk, capture.streams[d.chunk.stream], d.prepared.get());
                          }
                          spares.give(std::move(d.chunk));
                        })};
  for (const Segment& s : segments) run.total_bytes += s.end - s.begin;
  for_each_index(arena, workers, [&](size_t i) { work(run, *decoders[i]); });
  return {};
}

}  // namespace asof
