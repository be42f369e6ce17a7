// CallTracker: FlowOps of all streams, in order of time, to slices of CPUs and threads. Every thread has a
// CallStack, which goes with it from CPU to CPU; every CPU runs one.
//
// Which thread: where the kernel is traced and has names, stacks are exchanged at the instruction that does
// it, the exit of __switch_to_asm or cpu_switch_to, and the switch records say to which thread (they are
// written shortly before, in prepare_task_switch()). Without names, it is the change of the address space
// that is next to a record. Otherwise the times of the records alone decide.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "decoder/calls/call_stack.h"
#include "decoder/calls/flow_ops.h"
#include "decoder/calls/timeline.h"
#include "decoder/calls/timeline_functions.h"

namespace asof {

class CallTracker final {
 public:
  CallTracker(const Capture& capture, const TimelineOptions& options, bool has_time, TimelineSink& sink);

  // The next op of a stream. Calls come in order of time over all streams.
  void op(size_t stream, const FlowOps& chunk, const FlowOp& op);
  void finish();

  // Spans of ops (call_span.h), for sinks that take sums. Gives the functions of a chunk's sums their numbers.
  void number_keys(FlowOps& chunk);
  // The first op of a span is next. True: the same as its ops is span_ends(), when it is the turn of its last op. Before
  // anything else could make a difference there, `break_span` is called for its stream; it passes the ops that are due
  // one by one, and the others when it is their turn.
  bool span_begins(size_t stream, const FlowOps& chunk, const CallSpan& span);
  void span_ends(size_t stream, const FlowOps& chunk, const CallSpan& span);
  void on_break(std::function<void(size_t stream)> break_span) { break_span_ = std::move(break_span); }
  void span_broken(size_t stream) { cpus_[stream].in_span = false; }

  Time now(size_t stream) const { return cpus_[stream].now; }
  // The thread that runs there is.
  bool is_wanted(size_t stream) const { return cpus_[stream].thread->wanted; }
  const TimelineSummary& summary() const { return summary_; }
  FunctionTable& functions() { return functions_; }

 private:
  friend class SpanFinder;
  // The most slices kept back because their caller is not known yet.
  static constexpr size_t kMaxUnparented = 4096;

  struct Cpu;
  // Slices that ended before their caller was known.
  struct UnparentedSlices {
    std::vector<Slice> slices;
    uint64_t instructions = 0;
    Time begin = kTimeMax;  // of the first, and the instructions on the track until then
    uint64_t count = UINT64_MAX;
  };
  // A thread's time on a CPU that ended before its outermost callers were known. They become known when it
  // returns to them, perhaps on another CPU.
  struct Residency {
    uint32_t track = 0;
    int32_t cpu = -1;
    Time end = 0;
    uint64_t count = 0;  // instructions on the track until it ended
    UnparentedSlices outermost;
  };
  // Host of its own stack: whichever CPU's op is being processed, a frame is charged to the thread it is of.
  struct Thread final : FrameHost {
    explicit Thread(CallTracker& tracker) : host(tracker), stack(tracker.functions_, *this) {}
    void opened(Frame& frame) override { host.opened(*this, frame); }
    void discovered(Frame& frame, const Frame* above) override { host.discovered(*this, frame, above); }
    void closed(Frame& frame, Frame* below, bool lost) override { host.closed(*this, frame, below, lost); }
    void adopted(CallStack&, size_t count) override { host.adopted(*this, count); }
    void refuted() override { host.refuted(*this); }
    CallTracker& host;
    CallStack stack;
    int32_t pid = -1, tid = -1;
    uint32_t track = 0;
    bool tracked = false;
    bool wanted = true;
    Cpu* on = nullptr;
    Time last = kTimeMin;     // times on its track do not go back
    uint64_t count = 0;       // instructions it executed
    Time stretch = kTimeMin;  // its flow is known since
    uint64_t stretch_count = 0;
    Cpu* stretch_on = nullptr;  // where it began, and how many instructions that CPU had executed
    uint64_t stretch_cpu_count = 0;
    Time lost_at = kTimeMin;  // its flow was lost then, having executed so much
    uint64_t lost_count = 0, lost_cpu_count = 0;
    UnparentedSlices thread_unparented, part_unparented;
    std::vector<Residency> residencies;  // of this stretch
  };
  struct Cpu {
    size_t stream = 0;
    int32_t cpu = -1;
    uint32_t track = 0;
    bool tracked = false;
    bool started = false;
    Thread* thread = nullptr;
    size_t context = 0;  // of Stream::contexts, in force
    Time now = 0;
    uint64_t count = 0;
    Time resident = 0;  // its thread is here since
    uint64_t resident_count = 0;
    Time step = 0;  // how far apart instants of the trace are, lately
    bool flow = false;
    bool lost = false;  // flow ended by a gap
    Time lost_at = 0;
    bool has_exit = false, has_async = false;
    FlowOp exit, async;
    bool open_gap = false;
    GapSlice gap;
    bool gap_wanted = false;
    Time gap_until = kTimeMax;
    bool open_block = false;
    BlockSlice block;
    uint64_t since = 0;    // ops since it has this stack
    uint64_t slices = 0;   // that began here
    bool in_span = false;  // which will be taken at its end
  };

  // FrameHost. A thread without a CPU gets no new frames; closed() may come at the end.
  void opened(Thread& t, Frame& frame);
  void discovered(Thread& t, Frame& frame, const Frame* above);
  void closed(Thread& t, Frame& frame, Frame* below, bool lost);
  void adopted(Thread& t, size_t count);
  void refuted(Thread& t);

  Landing landing(const Cpu& c, const FlowOp& op);
  void advance(Cpu& c, const FlowOp& op);
  void entry(Cpu& c, const FlowOp& op);
  void branch(Cpu& c, const FlowOp& op);
  void stop(Cpu& c, const FlowOp& op);
  void lose(Cpu& c, const FlowOps& chunk, const FlowOp& op);
  void end_gap(Cpu& c);
  void block(Cpu& c, const FlowOps& chunk, const FlowOp& op);
  void end_block(Cpu& c);
  void event(Cpu& c, const Event& e);
  void resume(Cpu& c, const FlowOp& op);
  // The branch at the end of a chunk led to where the next one begins.
  static FlowOp joined(const FlowOp& exit, const FlowOp& entry);
  // A branch that stays in its function, or goes where it would have gone without.
  static bool stays(const FlowOp& branch);

  // Spans (call_tracker_spans.cpp).
  void break_spans(const GapSlice& gap);
  // For SpanFinder: from here on the stream is in a function that is not known, on a stack that is not known.
  Frame& stand_in(size_t stream);

  // Threads (call_threads.cpp).
  void start(Cpu& c, Time t);
  // Processes records that are this much older than now.
  void follow_records(Cpu& c, Time delay);
  static Time lateness(const Cpu& c);
  // By the records, one that is ran there.
  bool any_wanted(size_t stream, Time from, Time to) const;
  void exchange_stacks(Cpu& c, const FlowOp& op);
  void switch_to(Cpu& c, const ContextChange* context) { switch_to(c, thread_of(c, context)); }
  void switch_to(Cpu& c, Thread& next);
  void take_away(Cpu& c);
  void leave(Cpu& c, uint32_t flags);
  void set_lost(Cpu& c);
  Thread& thread_of(Cpu& c, const ContextChange* context);
  Thread& thread_of(Cpu& c, int32_t tid, int32_t pid);
  void begin_stretch(Cpu& c);
  void flush(UnparentedSlices& unparented, Frame* parent, bool thread);
  void keep_residency(Thread& t, const Cpu& c);
  // Callers found now were below what ran in the thread's residencies.
  void extend_residencies(Thread& t, size_t frames);
  void forget_residencies(Thread& t);

  // Of the next slice that begins there. Each stream counts for itself, so that ids do not depend on how what several
  // do at a time is joined.
  uint64_t next_id(Cpu& c) const { return c.slices++ * cpus_.size() + c.stream + 1; }
  void open_part(Cpu& c, Frame& frame, Time begin, uint64_t count, uint32_t flags);
  void close_part(Thread& t, Frame& frame, Frame* below, bool lost, uint32_t flags);
  void emit(const Frame& frame, const Activity& a, uint32_t track, Activity* below,
            UnparentedSlices* unparented, Time end, uint64_t count, uint32_t flags);

  const Capture& capture_;
  const TimelineOptions& options_;
  TimelineSink& sink_;
  const bool has_time_;
  const uint64_t insn_size_;  // what a breakpoint handler skips when it emulates a call
  FunctionTable functions_;
  std::vector<Cpu> cpus_;
  std::map<std::pair<int32_t, int32_t>, std::unique_ptr<Thread>> threads_;  // (tid, CPU for idle and unknown)
  bool anchored_ = false;
  size_t kept_ = 0;  // slices in residencies
  uint32_t next_track_ = 0;
  TimelineSummary summary_;
  std::function<void(size_t stream)> break_span_;
  std::unique_ptr<Thread> stand_in_;
};

}  // namespace asof
