#include "decoder/calls/timeline.h"

#include <fmt/format.h>
#include <tbb/enumerable_thread_specific.h>

#include <algorithm>
#include <array>
#include <deque>
#include <queue>

#include "decoder/calls/call_tracker.h"
#include "decoder/calls/timeline_text.h"
#include "decoder/calls/timeline_window.h"

namespace asof {
namespace {

constexpr uint64_t kMaxWaiting = 256 << 20;  // bytes of ops of one stream that wait for another's

struct PreparedOps : ChunkConsumer::Prepared {
  FlowOps ops;
  uint64_t bytes() const override { return ops.bytes(); }
};

// Ops of all streams in one order, by time, ties by stream. As with lines of `asof decode`
// (tools/output/merge.h), what is before the start of the current segment can be passed on.
template <class Take>
class OpOrder {
 public:
  OpOrder(size_t streams, Take take) : queues_(streams), take_(std::move(take)) {}

  void add(size_t stream, FlowOps ops, Time watermark) {
    if (queues_.size() == 1) {
      for (const FlowOp& op : ops.ops) take_(stream, ops, op);
      return;
    }
    if (!ops.ops.empty()) {
      Queue& q = queues_[stream];
      waiting_ += ops.bytes();
      q.chunks.push_back(std::move(ops));
      if (q.chunks.size() == 1) push(stream);
    }
    while (!heads_.empty() && heads_.top().first < watermark) advance(watermark);
    while (waiting_ > kMaxWaiting && !heads_.empty()) {
      ++forced_;
      advance(heads_.top().first + 1);
    }
  }
  void finish() {
    while (!heads_.empty()) advance(kTimeMax);
  }
  uint64_t forced() const { return forced_; }

 private:
  struct Queue {
    std::deque<FlowOps> chunks;
    size_t next = 0;
    Time last = kTimeMin;
  };
  using Head = std::pair<Time, size_t>;

  void push(size_t stream) {
    Queue& q = queues_[stream];
    heads_.emplace(std::max(q.last, q.chunks.front().ops[q.next].time), stream);
  }
  // Takes from the earliest stream what is before `until` and before every other stream.
  void advance(Time until) {
    const size_t stream = heads_.top().second;
    heads_.pop();
    const Head other = heads_.empty() ? Head{kTimeMax, SIZE_MAX} : heads_.top();
    Queue& q = queues_[stream];
    while (!q.chunks.empty()) {
      const FlowOps& chunk = q.chunks.front();
      for (; q.next < chunk.ops.size(); ++q.next) {
        const Time t = std::max(q.last, chunk.ops[q.next].time);
        if ((t >= until && until != kTimeMax) || Head{t, stream} > other) return push(stream);
        q.last = t;
        take_(stream, chunk, chunk.ops[q.next]);
      }
      waiting_ -= chunk.bytes();
      q.chunks.pop_front();
      q.next = 0;
    }
  }

  std::vector<Queue> queues_;
  std::priority_queue<Head, std::vector<Head>, std::greater<>> heads_;
  Take take_;
  uint64_t waiting_ = 0, forced_ = 0;
};

std::vector<TimeBounds> windows_of(const TimelineOptions& options) {
  if (!options.detail) return {};
  if (options.detail_windows.empty()) return {options.detail_time};
  return options.detail_windows;
}

TimeBounds counted_of(const TimelineOptions& options, TimeBounds window) {
  return {std::max(options.counted.lo, window.lo), std::min(options.counted.hi, window.hi)};
}

// Passes everything on, and counts what it needs for counters.
class GapListener final : public TimelineSink {
 public:
  GapListener(TimelineSink& to, RateBuckets& rates) : to_(to), rates_(rates) {}
  void track(const TimelineTrack& t) override { to_.track(t); }
  void function(const TimelineFunction& f) override { to_.function(f); }
  void slice(const Slice& s) override { to_.slice(s); }
  void gap(const GapSlice& g) override {
    rates_.lost(g.cpu, g.begin, g.end);
    to_.gap(g);
  }
  void event(const EventMark& e) override { to_.event(e); }
  void block(const BlockSlice& b) override { to_.block(b); }
  bool takes_blocks_at_once() const override { return to_.takes_blocks_at_once(); }
  void run(const RunSlice& r) override { to_.run(r); }
  void poke(const PokeSlice& p) override { to_.poke(p); }
  void lifetime(const LifetimeSlice& l) override { to_.lifetime(l); }
  void counter(const CounterPoint& p) override { to_.counter(p); }

 private:
  TimelineSink& to_;
  RateBuckets& rates_;
};

class TimelineConsumer final : public ChunkConsumer {
 public:
  TimelineConsumer(const Capture& capture, const TimelineOptions& options, TimelineSink& sink)
      : capture_(capture),
        sink_(sink),
        has_time_(timeline_clock(capture) == TimelineSummary::Clock::kNanoseconds),
        window_time_(has_time_ ? options.pipeline.time : TimeBounds()),
        job_(capture, windows_of(options), counted_of(options, window_time_)),
        gaps_(sink, rates_),
        window_(gaps_, capture.streams.size(), window_time_),
        left_(capture.streams.size()),
        tracker_(capture, options, has_time_, window_),
        pokes_(capture),
        readers_([this] { return FlowReader(job_); }),
        order_(capture.streams.size(), TakeOp{*this}) {}

  std::unique_ptr<Prepared> prepare(const Chunk& chunk, const Stream&) override {
    auto prepared = std::make_unique<PreparedOps>();
    readers_.local().read(chunk, prepared->ops);
    return prepared;
  }
  void deliver(Chunk& chunk, const Stream&, Prepared* prepared) override {
    order_.add(chunk.stream, std::move(static_cast<PreparedOps&>(*prepared).ops), chunk.segment_start);
  }
  bool delivers_steps() const override { return false; }
  bool stopped() const override { return sink_.stopped(); }

  TimelineSummary finish() {
    order_.finish();
    tracker_.finish();
    for (size_t i = 0; i < capture_.streams.size(); ++i)
      window_.blocks().finish(i, capture_.streams[i].bounds.hi);
    emit_runs();
    if (tracker_.summary().clock == TimelineSummary::Clock::kNanoseconds) {
      emit_text_versions(capture_, window_);
      window_.finish();
      rates_.finish(window_);
    }
    pokes_.finish(window_);
    emit_lifetimes(capture_, window_);
    TimelineSummary summary = tracker_.summary();
    summary.reordered = order_.forced();
    summary.slices = window_.slices();
    summary.gaps = window_.gaps();
    summary.begin = std::clamp(summary.begin, window_time_.lo, window_time_.hi);
    summary.end = std::clamp(summary.end, window_time_.lo, window_time_.hi);
    return summary;
  }

 private:
  struct TakeOp {
    TimelineConsumer& to;
    void operator()(size_t stream, const FlowOps& chunk, const FlowOp& op) const {
      to.take(stream, chunk, op);
    }
  };
  void take(size_t stream, const FlowOps& chunk, const FlowOp& op) {
    follow_exit(stream, op);
    const Time before = tracker_.now(stream);
    window_.blocks().time(
        stream, has_time_ ? std::max(before, op.time) : before + static_cast<Time>(op.instructions));
    tracker_.op(stream, chunk, op);
    if (op.kind == FlowOp::Kind::kBlock) window_.blocks().begun(stream, tracker_.now(stream));
    const int32_t cpu = capture_.streams[stream].cpu;
    const Time now = tracker_.now(stream);
    if (op.kind == FlowOp::Kind::kVisit && window_.contains(now)) {
      pokes_.visited(cpu, now, chunk.visits[op.item]);
    } else if (op.kind == FlowOp::Kind::kAsync && window_.contains(now)) {
      pokes_.interrupted(cpu, now, op.from);
    }
    if (has_time_ && op.instructions != 0) rates_.add(cpu, now, op.instructions);
  }
  // A chunk ends after a branch, and the next one says where it led.
  void follow_exit(size_t stream, const FlowOp& op) {
    constexpr uint8_t kElsewhere = Step::kAfterGap | Step::kAsyncEntry;
    if (left_[stream] && op.kind == FlowOp::Kind::kEntry && (op.flags & kElsewhere) == 0)
      window_.blocks().led_to(stream, op.to);
    left_[stream] = op.kind == FlowOp::Kind::kExit || (left_[stream] && op.kind == FlowOp::Kind::kEvent);
  }
  void emit_runs();

  const Capture& capture_;
  TimelineSink& sink_;
  const bool has_time_;
  const TimeBounds window_time_;
  FlowJob job_;
  RateBuckets rates_;
  GapListener gaps_;
  WindowSink window_;
  std::vector<bool> left_;  // by stream
  CallTracker tracker_;
  PokeWindows pokes_;
  tbb::enumerable_thread_specific<FlowReader> readers_;
  OpOrder<TakeOp> order_;
};

// The threads on each CPU, by the switch records.
void TimelineConsumer::emit_runs() {
  const TimelineSummary& all = tracker_.summary();
  if (all.clock != TimelineSummary::Clock::kNanoseconds) return;
  for (const Stream& s : capture_.streams) {
    if (s.cpu < 0) continue;
    for (size_t i = 0; i < s.contexts.size(); ++i) {
      const ContextChange& c = s.contexts[i];
      RunSlice run{s.cpu, c.pid, c.tid, {}, std::max(c.time, all.begin), all.end};
      if (i + 1 < s.contexts.size()) run.end = std::min(run.end, s.contexts[i + 1].time);
      if (run.end <= run.begin || c.tid < 0) continue;
      run.comm = capture_.tasks.comm(c.tid, run.begin);
      window_.run(run);
    }
  }
}

}  // namespace

TimelineSummary::Clock timeline_clock(const Capture& c) {
  const bool has_time = c.x86.time || c.arm64.time || std::ranges::any_of(c.streams, [](const Stream& s) {
                          return s.bounds.lo != kTimeMin;
                        });
  return has_time ? TimelineSummary::Clock::kNanoseconds : TimelineSummary::Clock::kInstructions;
}

Result<TimelineSummary> run_timeline(const Capture& capture, const TimelineOptions& options,
                                     TimelineSink& sink,
                                     const std::function<void(const PipelineProgress&)>& progress) {
  sink.begin(capture);
  TimelineConsumer consumer(capture, options, sink);
  if (!options.flow) return consumer.finish();
  const auto done = run_pipeline(capture, options.pipeline, ChunkOrder::kByTime, consumer, progress);
  if (!done) return std::unexpected(done.error());
  return consumer.finish();
}

std::string_view function_kind_name(TimelineFunction::Kind kind) {
  constexpr std::array<std::string_view, 8> kNames = {"kernel",     "module", "user",    "bpf",
                                                      "trampoline", "slot",   "unnamed", "untraced"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view lifetime_kind_name(LifetimeSlice::Kind kind) {
  constexpr std::array<std::string_view, 4> kNames = {"bpf", "module", "out of line", "snapshot"};
  return kNames[static_cast<size_t>(kind)];
}

std::string versioned_name(const TimelineFunction& function, uint32_t version) {
  return function.changes.empty() ? function.name : fmt::format("{} ·v{}", function.name, version);
}

std::string slice_flag_names(uint32_t flags) {
  constexpr std::array<std::string_view, 14> kNames = {
      "async",   "syscall", "tail",         "emulated",   "began-before", "across-gap",    "end-unknown",
      "skipped", "resumed", "switched-out", "unbalanced", "signal",       "clipped-begin", "clipped-end"};
  std::string out;
  for (size_t i = 0; i < kNames.size(); ++i) {
    if ((flags >> i & 1U) == 0) continue;
    if (!out.empty()) out += ' ';
    out += kNames[i];
  }
  return out;
}

}  // namespace asof
