// scaling [--throttled] CAPTURE: what each part of decoding costs, and from that the speedup with more processors.
//
// The model: finding segments is one thread's work at a time, and so is delivery, in order; decoding is parallel. The
// CPU time of each segment is measured in a run with one thread. The model gives packs of segments to n workers in
// order, as the pipeline does. Each worker has caches of its own, which are cold at first: what that costs is measured
// by decoding the share of each of n workers with a decoder of its own, one after the other, and compared with the CPU
// time of a run with two threads. Opening has a sequential part (Amdahl's law), from its wall time with one and two
// threads.
//
// --throttled tests the model with the pipeline itself: n workers, each of which sleeps after each chunk until it is
// n times as slow, so that together they use one processor, and wait for each other as n real ones of that lower
// speed would. Memory and shared caches are not slower, the caches of a processor are shared by many workers (CPU: all
// their time together, of that with one), and locks are held for as short as ever: the time under the plan's lock is
// printed, as a bound of its own.
#include <fmt/format.h>
#include <time.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <queue>
#include <thread>
#include <utility>
#include <vector>

#include "decoder/pipeline/pipeline.h"
#include "decoder/pipeline/plan.h"
#include "tests/bench/chunk_count.h"
#include "tests/bench/peer.h"

namespace asof::bench {
namespace {

double clock_seconds(clockid_t clock) {
  timespec t{};
  ::clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}
double thread_seconds() { return clock_seconds(CLOCK_THREAD_CPUTIME_ID); }

// Sleeps until a thread has taken `slower` times its CPU time.
class Brake {
 public:
  explicit Brake(double slower) : slower_(slower) {}
  void pay() {
    const double now = thread_seconds();
    owed_ += (now - paid_) * (slower_ - 1);
    paid_ = now;
    constexpr double kLeast = 0.0002;  // shorter sleeps are not exact
    if (owed_ < kLeast) return;
    const double before = clock_seconds(CLOCK_MONOTONIC);
    const auto whole = static_cast<time_t>(owed_);
    const timespec t{whole, static_cast<long>((owed_ - static_cast<double>(whole)) * 1e9)};
    ::nanosleep(&t, nullptr);
    owed_ -= clock_seconds(CLOCK_MONOTONIC) - before;
    paid_ = thread_seconds();
  }

 private:
  double slower_, owed_ = 0, paid_ = thread_seconds();
};

// Counts as `digest` does, and measures its own delivery.
class Measured final : public ChunkConsumer {
 public:
  explicit Measured(double slower = 1) : slower_(slower) {}
  std::unique_ptr<Prepared> prepare(const Chunk& chunk, const Stream&) override {
    auto part = std::make_unique<Part>(count_.count(chunk));
    if (slower_ > 1) brake().pay();
    return part;
  }
  void deliver(Chunk& chunk, const Stream&, Prepared* prepared) override {
    const double start = clock_seconds(CLOCK_MONOTONIC);  // a thread's own clock takes longer than this does
    count_.add(chunk, *static_cast<Part*>(prepared)->tally);
    delivered_ += clock_seconds(CLOCK_MONOTONIC) - start;
    if (slower_ > 1) brake().pay();
  }
  bool delivers_steps() const override { return false; }
  double delivered() const { return delivered_; }
  uint64_t hash() const { return count_.outcome.hash; }

 private:
  struct Part final : Prepared {
    explicit Part(std::unique_ptr<Tally> t) : tally(std::move(t)) {}
    std::unique_ptr<Tally> tally;
  };
  Brake& brake() {
    const std::lock_guard lock(mutex_);
    return brakes_.try_emplace(std::this_thread::get_id(), slower_).first->second;
  }
  ChunkCount count_{true};
  double delivered_ = 0;
  const double slower_;
  std::mutex mutex_;
  std::map<std::thread::id, Brake> brakes_;
};

struct SegmentCost {
  uint64_t bytes = 0;
  double decode = 0, deliver = 0;
};

// One thread: the cost of each segment, in order.
std::vector<SegmentCost> measure_segments(const Capture& capture, uint64_t& hash) {
  std::vector<SegmentCost> out;
  Measured consumer;
  double last = thread_seconds(), delivered = 0;
  uint64_t done = 0;
  const auto progress = [&](const PipelineProgress& p) {
    if (p.done_bytes == done) return;
    const double now = thread_seconds(), deliver = consumer.delivered() - delivered;
    out.push_back({p.done_bytes - done, now - last - deliver, deliver});
    last = now, done = p.done_bytes, delivered = consumer.delivered();
  };
  if (!run_pipeline(capture, {.jobs = 1, .decode = {.sum_runs = true}}, ChunkOrder::kByStream, consumer,
                    progress))
    out.clear();
  hash = consumer.hash();
  return out;
}

// What is done under the plan's lock: all that workers do not do before they take it.
double measure_plan(const Arch& arch, const Capture& capture, std::vector<Segment>& segments) {
  const PipelineOptions options;
  SegmentPlan first(arch, capture, options, ChunkOrder::kByStream);
  while (auto segment = first.next()) segments.push_back(*std::move(segment));
  SegmentPlan plan(arch, capture, options, ChunkOrder::kByStream);
  while (plan.scan_ahead(SIZE_MAX)) {
  }
  const double start = thread_seconds();
  while (plan.next()) {
  }
  return thread_seconds() - start;
}

// Segments that one worker takes at a time, as Decoding::take() does: calls `pack(first, end)`.
template <class Pack>
void each_pack(const std::vector<SegmentCost>& segments, uint64_t bytes, size_t workers, const Pack& pack) {
  for (size_t i = 0; i < segments.size();) {
    const size_t begin = i, most = std::max<size_t>(1, i / (4 * workers));
    uint64_t taken = 0;
    do taken += segments[i++].bytes;
    while (i < segments.size() && taken < bytes && i - begin < most);
    pack(begin, i);
  }
}

std::vector<SegmentCost> packed(const std::vector<SegmentCost>& segments, uint64_t bytes, size_t workers) {
  std::vector<SegmentCost> out;
  each_pack(segments, bytes, workers, [&](size_t begin, size_t end) {
    SegmentCost& pack = out.emplace_back();
    for (size_t i = begin; i < end; ++i) {
      pack.bytes += segments[i].bytes;
      pack.decode += segments[i].decode;
      pack.deliver += segments[i].deliver;
    }
  });
  return out;
}

struct Model {
  std::vector<SegmentCost> segments;
  uint64_t pack_bytes = 0;
  std::map<size_t, double> more_work;  // by number of workers: CPU time, of that with one decoder
  double plan = 0;                     // seconds under the lock, of all segments
  double total = 0;                    // of all segments with one worker

  // Seconds until the last pack is delivered.
  double time(size_t workers) const {
    std::priority_queue<double, std::vector<double>, std::greater<>> free;
    for (size_t i = 0; i < workers; ++i) free.push(0);
    double locked = 0, delivered = 0;
    for (const SegmentCost& pack : packed(segments, workers == 1 ? 0 : pack_bytes, workers)) {
      locked = std::max(locked, free.top()) + plan * static_cast<double>(pack.bytes) / bytes();
      const double made = std::max(locked, free.top()) + pack.decode * more_work.at(workers);
      free.pop();
      delivered = std::max(delivered, made) + pack.deliver;
      free.push(made + pack.deliver);
    }
    return delivered;
  }
  double bytes() const {
    uint64_t all = 0;
    for (const SegmentCost& s : segments) all += s.bytes;
    return static_cast<double>(all);
  }
};

CaptureOptions options_with(unsigned jobs) {
  CaptureOptions options;
  options.host_files = false;
  options.jobs = jobs;
  return options;
}

// Wall seconds of opening, the least of some.
double open_seconds(const std::string& path, unsigned jobs) {
  double least = 1e9;
  for (int round = 0; round < 5; ++round) {
    const double start = clock_seconds(CLOCK_MONOTONIC);
    const auto opened = open_capture(path, options_with(jobs));
    least = std::min(least, clock_seconds(CLOCK_MONOTONIC) - start);
  }
  return least;
}

struct Throttled {
  double speedup = 0;
  double cpu = 0;   // CPU seconds of all workers together
  double busy = 0;  // what part of the time a worker had something to do
};

Throttled run_throttled(const Capture& capture, size_t workers, double one, uint64_t hash) {
  const auto slower = static_cast<double>(workers);
  Measured consumer(slower);
  Throttled out;
  const double start = clock_seconds(CLOCK_MONOTONIC);
  out.cpu = cpu_seconds_of([&] {
    (void)run_pipeline(capture, {.jobs = static_cast<unsigned>(workers), .decode = {.sum_runs = true}},
                       ChunkOrder::kByStream, consumer);
  });
  const double time = (clock_seconds(CLOCK_MONOTONIC) - start) / slower;
  if (consumer.hash() != hash) throw std::runtime_error("another hash with more workers");
  out.speedup = one / time;
  out.busy = out.cpu / (time * slower);
  return out;
}

class Counted final : public ChunkSink {
 public:
  Chunk spare() override { return std::exchange(spare_, Chunk{}); }
  void take(Chunk&& chunk) override {
    count_.add(chunk);
    spare_ = std::move(chunk);
    spare_.clear();
  }

 private:
  ChunkCount count_{true};
  Chunk spare_;
};

// CPU seconds of n decoders, of which each decodes every n-th pack: first all of one, then all of the next.
double sliced(const Capture& capture, const Model& model, const std::vector<Segment>& segments, size_t n) {
  const auto arch = capture.arch();
  std::vector<std::vector<const Segment*>> shares(n);
  size_t at = 0;
  each_pack(model.segments, n == 1 ? 0 : model.pack_bytes, n, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) shares[at % n].push_back(&segments[i]);
    ++at;
  });
  const double start = thread_seconds();
  std::vector<std::unique_ptr<SegmentDecoder>> decoders;  // what one finds belongs to it, and others use it
  for (const auto& share : shares) {
    decoders.push_back((*arch)->decoder(capture.streams, *capture.text, {.sum_runs = true}));
    Counted sink;
    for (const Segment* segment : share) decoders.back()->decode(*segment, sink);
  }
  return thread_seconds() - start;
}

constexpr std::array<size_t, 7> kWorkers = {1, 2, 4, 8, 16, 32, 64};

std::optional<Model> measure(const Capture& capture, uint64_t& hash) {
  Model model;
  measure_segments(capture, hash);  // pages of the file
  model.segments = measure_segments(capture, hash);
  const auto arch = capture.arch();
  if (model.segments.empty() || !arch) return std::nullopt;
  model.pack_bytes = (*arch)->preferred_batch_bytes();
  std::vector<Segment> segments;
  model.plan = measure_plan(**arch, capture, segments);
  if (segments.size() != model.segments.size()) return std::nullopt;
  for (SegmentCost& s : model.segments) {
    model.total += s.decode + s.deliver;
    // It was measured with the decoding.
    s.decode = std::max(0.0, s.decode - model.plan * static_cast<double>(s.bytes) / model.bytes());
  }
  std::map<size_t, std::vector<double>> seconds;
  for (int round = 0; round < 3; ++round) {
    for (const size_t n : kWorkers) seconds[n].push_back(sliced(capture, model, segments, n));
  }
  for (const size_t n : kWorkers) model.more_work[n] = median(seconds[n]) / median(seconds[1]);
  return model;
}

// CPU time with two threads, of that with one.
double two_threads(const Capture& capture) {
  std::vector<double> one, two;
  for (int round = 0; round < 3; ++round) {
    for (const unsigned jobs : {1U, 2U}) {
      Measured consumer;
      (jobs == 1 ? one : two).push_back(cpu_seconds_of([&] {
        (void)run_pipeline(capture, {.jobs = jobs, .decode = {.sum_runs = true}}, ChunkOrder::kByStream,
                           consumer);
      }));
    }
  }
  return median(two) / median(one);
}

int run(const std::string& path, bool throttled) {
  const auto capture = open_capture(path, options_with(0));
  if (!capture) return fmt::print(stderr, "{}\n", capture.error().reason), 1;
  const double open1 = open_seconds(path, 1), open2 = open_seconds(path, 2);
  const double parallel = std::clamp(2 * (open1 - open2), 0.0, open1), sequential = open1 - parallel;
  uint64_t hash = 0;
  const auto model = measure(*capture, hash);
  if (!model) return 1;
  double deliver = 0, longest = 0;
  for (const SegmentCost& s : model->segments) deliver += s.deliver, longest = std::max(longest, s.decode);
  fmt::print("{}: {}\n", path, machine_name());
  fmt::print(
      "opening {:.1f} ms, of which {:.1f} in one thread; {} segments of {:.1f} MB: decoding {:.1f} ms\n",
      open1 * 1e3, sequential * 1e3, model->segments.size(), model->bytes() / 1e6, model->total * 1e3);
  fmt::print(
      "one at a time: finding segments {:.2f} ms, delivery {:.2f} ms; the longest segment {:.2f} ms; "
      "CPU time with two threads {:.2f} times that with one\n",
      model->plan * 1e3, deliver * 1e3, longest * 1e3, two_threads(*capture));
  fmt::print("{:>7} {:>5} {:>9} {:>13} {}\n", "workers", "work", "decoding", "with opening",
             throttled ? " throttled   CPU  busy" : "");
  for (const size_t n : kWorkers) {
    const double t = model->time(n), opening = sequential + parallel / static_cast<double>(n);
    fmt::print("{:>7} {:>5.2f} {:>9.2f} {:>13.2f}", n, model->more_work.at(n), model->total / t,
               (open1 + model->total) / (opening + t));
    if (throttled) {
      const Throttled r = run_throttled(*capture, n, model->total, hash);
      fmt::print("{:>11.2f} {:>5.2f} {:>5.2f}", r.speedup, r.cpu / model->total, r.busy);
    }
    fmt::print("\n");
  }
  return 0;
}

}  // namespace
}  // namespace asof::bench

int main(int argc, char** argv) {
  CLI::App app("Speedup with more processors");
  std::string capture;
  bool throttled = false;
  app.add_option("capture", capture)->required();
  app.add_flag("--throttled", throttled, "test the model with the pipeline, its workers slowed down");
  CLI11_PARSE(app, argc, argv);
  return asof::bench::run(capture, throttled);
}
