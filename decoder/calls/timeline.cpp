#include "decoder/calls/timeline.h"

#include <tbb/enumerable_thread_specific.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "decoder/blocks/block_file.h"
#include "decoder/calls/block_limit.h"
#include "decoder/calls/call_part.h"
#include "decoder/calls/call_stub.h"
#include "decoder/calls/call_tracker.h"
#include "decoder/calls/op_order.h"
#include "decoder/calls/span_finder.h"
#include "decoder/calls/timeline_text.h"
#include "decoder/calls/timeline_window.h"

namespace asof {
namespace {

struct PreparedOps : ChunkConsumer::Prepared {
  FlowOps ops;
  bool agrees = true;  // what the block stream says of its calls with its flow
  uint64_t bytes() const override { return ops.bytes() + ops.span_bytes(); }
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
  bool takes_sum(uint32_t track, Time begin, Time end) const override {
    return to_.takes_sum(track, begin, end);
  }
  void sum(const CallSums& sums, uint32_t track, uint64_t parent) override { to_.sum(sums, track, parent); }
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

bool sums_suffice(const TimelineOptions& options, const TimelineSink& sink, TimeBounds counted) {
  const auto all = [](TimeBounds t) { return t.lo == kTimeMin && t.hi == kTimeMax; };
  return sink.takes_sums() && options.calls && !options.detail && all(options.pipeline.time) && all(counted);
}

// Whether ops of straight runs decide nothing but what becomes of these: not the rates of instructions in time, nor which
// thread runs, which the distances of times decide. When they are left out differs from run to run.
bool may_count_blocks(const Capture& capture) {
  return timeline_clock(capture) == TimelineSummary::Clock::kInstructions &&
         std::ranges::all_of(capture.streams, [](const Stream& s) { return s.contexts.size() <= 1; });
}

class TimelineConsumer final : public ChunkConsumer {
 public:
  TimelineConsumer(const Capture& capture, const TimelineOptions& options, TimelineSink& sink,
                   BlockLimit* limit, std::optional<CallPart> part = {}, const AroundPart& around = {})
      : capture_(capture),
        sink_(sink),
        part_(std::move(part)),
        part_sink_(sink, around),
        limit_(may_count_blocks(capture) ? limit : nullptr),
        on_gap_(options.on_gap),
        enough_(options.enough),
        wants_thread_(options.wants_thread),
        has_time_(timeline_clock(capture) == TimelineSummary::Clock::kNanoseconds),
        window_time_(has_time_ ? options.pipeline.time : TimeBounds()),
        job_(capture, windows_of(options), counted_of(options, window_time_)),
        gaps_(part_ ? part_sink_ : sink, rates_),
        window_(gaps_, capture.streams.size(), window_time_, job_.counted),
        left_(capture.streams.size()),
        tracker_(capture, options, has_time_, window_),
        pokes_(capture),
        sums_(part_ || sums_suffice(options, sink, job_.counted)),
        readers_([this] { return FlowReader(job_); }),
        finders_([this] { return std::make_unique<SpanFinder>(capture_, has_time_); }),
        order_(capture.streams.size(), *this) {
    if (sums_) tracker_.on_break([this](size_t stream) { order_.break_span(stream); });
    if (sums_ && capture.blocks && capture.blocks->has_calls()) symbols_ = capture.symbols.all();
    if (part_ && part_->first() == part_->end() && !part_->last()) done_ = true;
  }
  bool takes_calls() const { return symbols_.has_value(); }

  std::unique_ptr<Prepared> prepare(const Chunk& chunk, const Stream&) override {
    auto prepared = std::make_unique<PreparedOps>();
    FlowOps& ops = prepared->ops;
    if (part_ && part_->has(chunk.stream, chunk.calls_of)) {
      prepared->agrees = read_own(chunk, ops);
    } else if (chunk.calls.empty()) {
      read(chunk, ops);
    } else if (take_calls(chunk.calls, *symbols_, has_time_, ops)) {
      ops.record = chunk.calls_of;
    } else {
      ops = ops_of_record(chunk.stream, chunk.calls_of);
    }
    return prepared;
  }
  void deliver(Chunk& chunk, const Stream& stream, Prepared* prepared) override {
    FlowOps& ops = static_cast<PreparedOps&>(*prepared).ops;
    if (part_) {
      follow_part();
      if (done_) return;
      if (!static_cast<PreparedOps&>(*prepared).agrees) return refuse(chunk);
    }
    if (limit_ != nullptr) limit_->left_out += ops.pieces_left_out;
    if (on_gap_ && (!part_ || part_sink_.within()))
      std::ranges::for_each(ops.gaps, [&](const Gap& g) { on_gap_(g, stream); });
    if (sums_) tracker_.number_keys(ops);
    order_.add(chunk.stream, std::move(ops), chunk.segment_start);
  }
  bool delivers_steps() const override { return false; }
  bool stopped() const override { return done_ || sink_.stopped() || (enough_ && enough_()); }
  const std::optional<Error>& error() const { return error_; }

  TimelineSummary finish() {
    if (part_) end_part();
    if (!done_) {
      order_.finish();
      tracker_.finish();
    }
    for (size_t i = 0; i < capture_.streams.size(); ++i)
      window_.blocks().finish(i, capture_.streams[i].bounds.hi);
    if (!sums_) finish_text();
    TimelineSummary summary = tracker_.summary();
    summary.reordered = order_.forced();
    summary.slices = window_.slices();
    summary.gaps = window_.gaps();
    if (part_) {
      summary.slices = part_sink_.slices();
      summary.gaps = part_sink_.gaps();
    }
    summary.begin = std::clamp(summary.begin, window_time_.lo, window_time_.hi);
    summary.end = std::clamp(summary.end, window_time_.lo, window_time_.hi);
    return summary;
  }

 private:
  friend class OpOrder<TimelineConsumer>;
  void read(const Chunk& chunk, FlowOps& ops) {
    readers_.local().read(chunk, ops, limit_ != nullptr && limit_->full);
    if (sums_) finders_.local()->read(chunk.stream, ops);
  }
  FlowOps ops_of_record(size_t stream, size_t record) {
    FlowOps ops;
    read(capture_.blocks->read(stream, capture_.blocks->frames(stream)[record]), ops);
    return ops;
  }
  bool whole(size_t stream, FlowOps& chunk, size_t at);
  // Of a part (call_part.h).
  bool read_own(const Chunk& chunk, FlowOps& ops);
  void follow_part();
  void begin_part() {
    order_.take_single();
    part_sink_.now(PartSink::Now::kWithin);
  }
  // After the last record: what comes then is of the last part.
  void end_part() {
    if (part_->last() && !part_sink_.within()) begin_part();
    if (!part_->last() && part_sink_.within()) part_sink_.now(PartSink::Now::kBehind);
  }
  void refuse(const Chunk& chunk);
  void finish_text() {
    emit_runs();
    if (tracker_.summary().clock == TimelineSummary::Clock::kNanoseconds) {
      emit_text_versions(capture_, window_);
      window_.finish();
      rates_.finish(window_);
    }
    pokes_.finish(window_);
    emit_lifetimes(capture_, window_);
  }
  void op(size_t stream, const FlowOps& chunk, const FlowOp& op) {
    if (sums_) return tracker_.op(stream, chunk, op);
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
      pokes_.interrupted(cpu, now, op.from, op.to);
    }
    if (has_time_ && op.instructions != 0 && tracker_.is_wanted(stream))
      rates_.add(cpu, now, op.instructions);
  }
  bool span_begins(size_t stream, const FlowOps& chunk, const CallSpan& span) {
    return tracker_.span_begins(stream, chunk, span);
  }
  void span_ends(size_t stream, const FlowOps& chunk, const CallSpan& span) {
    tracker_.span_ends(stream, chunk, span);
  }
  void span_broken(size_t stream) { tracker_.span_broken(stream); }
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
  const std::optional<CallPart> part_;
  PartSink part_sink_;
  uint64_t records_ = 0;           // that were delivered
  std::atomic<bool> done_{false};  // with the part
  std::optional<Error> error_;
  BlockLimit* const limit_;
  const std::function<void(const Gap&, const Stream&)> on_gap_;
  const std::function<bool()> enough_;
  const std::function<bool(int32_t, int32_t)> wants_thread_;
  const bool has_time_;
  const TimeBounds window_time_;
  FlowJob job_;
  RateBuckets rates_;
  GapListener gaps_;
  WindowSink window_;
  std::vector<bool> left_;  // by stream
  std::optional<std::vector<const Symbol*>> symbols_;
  CallTracker tracker_;
  PokeWindows pokes_;
  const bool sums_;
  tbb::enumerable_thread_specific<FlowReader> readers_;
  tbb::enumerable_thread_specific<std::unique_ptr<SpanFinder>> finders_;
  OpOrder<TimelineConsumer> order_;
};

// Single calls are followed in the flow. What the block stream says of them is what the other parts rely on.
bool TimelineConsumer::read_own(const Chunk& chunk, FlowOps& ops) {
  if (chunk.calls.empty()) {
    readers_.local().read(chunk, ops);
    return true;
  }
  FlowOps said;
  const bool readable = take_calls(chunk.calls, *symbols_, has_time_, said);
  ops = ops_of_record(chunk.stream, chunk.calls_of);
  const bool agrees = !readable || put_calls(cut_spans(ops), has_time_) == put_calls(said, has_time_);
  ops.spans.clear();
  ops.keys.clear();
  return agrees;
}

// Before a record is taken.
void TimelineConsumer::follow_part() {
  const uint64_t record = records_++;
  if (record == part_->end() && part_sink_.within()) {
    part_sink_.now(PartSink::Now::kBehind);
    order_.take_spans();
  }
  if (record == part_->first() && record < part_->end()) begin_part();
  if (part_sink_.done()) done_ = true;
}

void TimelineConsumer::refuse(const Chunk& chunk) {
  const blocks::Frame& frame = capture_.blocks->frames(chunk.stream)[chunk.calls_of];
  error_ = Error{
      Code::kBadBlockStream, capture_.path, frame.file_offset,
      "what it says of the calls of a flow record is not what the flow says, and other shards rely on it",
      "decode it again, or use it without --shard"};
  done_ = true;
}

bool TimelineConsumer::whole(size_t stream, FlowOps& chunk, size_t at) {
  FlowOps ops = ops_of_record(stream, chunk.record);
  if (ops.ops.size() == whole_size(chunk) && ops.spans.size() == chunk.spans.size()) {
    tracker_.number_keys(ops);
    chunk = std::move(ops);
    return true;
  }
  Gap gap;
  gap.time.lo = chunk.ops[at].time;
  gap.code = Code::kBadBlockStream;
  const auto damaged = std::ranges::find(ops.gaps, Code::kBadBlockStream, &Gap::code);
  gap.reason =
      damaged != ops.gaps.end() ? damaged->reason : "a record of calls is not of the flow record before it";
  if (on_gap_) on_gap_(gap, capture_.streams[stream]);
  chunk.ops[at].kind = FlowOp::Kind::kGap;
  chunk.ops[at].item = static_cast<uint32_t>(chunk.gaps.size());
  chunk.gaps.push_back(std::move(gap));
  // Nothing more of it is believed, and the flow is not read again for each of its spans.
  chunk.ops.resize(at + 1);
  std::erase_if(chunk.spans, [at](const CallSpan& s) { return s.begin > at; });
  return false;
}

// The threads on each CPU, by the switch records.
void TimelineConsumer::emit_runs() {
  const TimelineSummary& all = tracker_.summary();
  if (all.clock != TimelineSummary::Clock::kNanoseconds) return;
  for (const Stream& s : capture_.streams) {
    if (s.cpu < 0) continue;
    for (size_t i = 0; i < s.contexts.size(); ++i) {
      const ContextChange& c = s.contexts[i];
      RunSlice run{s.cpu, c.pid, c.tid, {}, std::max(c.time, all.begin), all.end};
      if (i + 1 < s.contexts.size() && s.contexts[i + 1].time <= run.end) {
        run.end = s.contexts[i + 1].time;
        if (s.contexts[i + 1].preempts) run.flags |= Slice::kPreempted;
      }
      if (run.end <= run.begin || c.tid < 0 || (wants_thread_ && !wants_thread_(c.pid, c.tid))) continue;
      run.comm = capture_.tasks.comm(c.tid, run.begin);
      window_.run(run);
    }
  }
}

Result<TimelineSummary> follow(const Capture& capture, const TimelineOptions& options,
                               TimelineConsumer& consumer,
                               const std::function<void(const PipelineProgress&)>& progress) {
  PipelineOptions pipeline = options.pipeline;
  pipeline.decode.calls = consumer.takes_calls();
  const auto done = run_pipeline(capture, pipeline, ChunkOrder::kByTime, consumer, progress);
  if (!done) return std::unexpected(done.error());
  if (consumer.error()) return std::unexpected(*consumer.error());
  return consumer.finish();
}

}  // namespace

TimelineSummary::Clock timeline_clock(const Capture& c) {
  const bool has_time =
      c.x86.time || c.arm64.time || c.has_time ||
      std::ranges::any_of(c.streams, [](const Stream& s) { return s.bounds.lo != kTimeMin; });
  return has_time ? TimelineSummary::Clock::kNanoseconds : TimelineSummary::Clock::kInstructions;
}

namespace {

Result<TimelineSummary> run(const Capture& capture, const TimelineOptions& options, TimelineSink& sink,
                            BlockLimit* limit, const std::function<void(const PipelineProgress&)>& progress) {
  sink.begin(capture);
  TimelineConsumer consumer(capture, options, sink, limit);
  if (!options.flow) return consumer.finish();
  return follow(capture, options, consumer, progress);
}

}  // namespace

Result<TimelineSummary> run_timeline(const Capture& capture, const TimelineOptions& options,
                                     TimelineSink& sink,
                                     const std::function<void(const PipelineProgress&)>& progress) {
  return run(capture, options, sink, nullptr, progress);
}

Result<TimelineSummary> run_timeline_limited(const Capture& capture, const TimelineOptions& options,
                                             TimelineSink& sink, BlockLimit& limit,
                                             const std::function<void(const PipelineProgress&)>& progress) {
  return run(capture, options, sink, &limit, progress);
}

Result<TimelineSummary> run_timeline_part(const Capture& capture, const TimelineOptions& options, Shard part,
                                          TimelineSink& sink, const AroundPart& around,
                                          const std::function<void(const PipelineProgress&)>& progress) {
  const auto arch = capture.arch();
  if (!arch) return std::unexpected(arch.error());
  sink.begin(capture);
  TimelineConsumer consumer(capture, options, sink, nullptr,
                            CallPart(capture, **arch, options.pipeline, part), around);
  return follow(capture, options, consumer, progress);
}

}  // namespace asof
