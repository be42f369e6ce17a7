// Timeline: a capture for viewers: functions as nested slices in time, by CPU and by thread, together with
// all that happened to the text they ran. Made in two steps:
//
//   run_timeline()    decodes once and passes everything to a TimelineSink once it is known: slices when
//                     they end, children before their parents. Memory does not grow with the capture.
//   make_timeline()   the same, kept in memory, in order, with depths, folded down to so many slices. What
//                     was folded is counted, in the slice that holds it and in all.
//
// Times are nanoseconds of perf's clock; where a capture has no time at all, they are numbers of instructions
// (Timeline::clock). An instruction's time is that of the last timing packet read (Step::time): no bound, and
// several slices may begin at one instant; ids of one stream give the order. All is the same for every number of jobs.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "arch/arch.h"
#include "decoder/model/capture.h"
#include "decoder/model/flow_piece.h"
#include "decoder/model/text_mechanism.h"
#include "decoder/pipeline/pipeline.h"

namespace asof {

// A function as slices name it. Announced before the first slice that has it.
struct TimelineFunction {
  enum class Kind : uint8_t {
    kKernel,
    kModule,
    kUser,
    kBpf,         // a BPF program or sub-program
    kTrampoline,  // ftrace, BPF trampoline or dispatcher
    kSlot,        // kprobe's or optprobe's out-of-line code
    kUnnamed,     // no symbol; the name is the address
    kUntraced,    // what ran while tracing was off: a system call seen from user space, user code seen from
                  // the kernel
  };
  uint32_t id = 0;   // in the order in which they are met
  uint64_t key = 0;  // the same in every run over a capture: Symbol::number, or from kUnnamedKey on
  Kind kind = Kind::kKernel;
  std::string name;
  std::string linkage_name;  // as the file has it; empty: without a symbol
  std::string dso;
  Space space = kKernelSpace;
  AddrRange range;
  // Instants at which text in its range changed, sorted. Version n (Slice::version) is the text after the
  // first n - 1 of them. Empty: one version for all time.
  std::vector<Time> changes;
  uint32_t bpf_id = 0;  // 0: unknown or no BPF program
  std::string bpf_tag;
  std::string line;  // "main.c:12", where it begins; only whoever wants it fills it in

  static constexpr uint64_t kUnnamedKey = uint64_t{1} << 62U;

  uint32_t versions() const { return static_cast<uint32_t>(changes.size()) + 1; }
};
std::string_view function_kind_name(TimelineFunction::Kind kind);  // "kernel", "module", ...

struct TimelineTrack {
  enum class Kind : uint8_t { kCpu, kThread };
  uint32_t id = 0;
  Kind kind = Kind::kCpu;
  int32_t cpu = -1;            // kCpu; kThread of an idle task: its CPU
  int32_t pid = -1, tid = -1;  // kThread
  std::string name;            // "CPU 0", "worker 4711"
};

// One activation of a function on a thread's track; on a CPU's track, a part of one: from when it began, or
// its thread came, to when it ended, or its thread went.
struct Slice {
  static constexpr uint32_t kAsync = 1 << 0;    // entered by an interrupt or exception
  static constexpr uint32_t kSyscall = 1 << 1;  // entered by a system call
  static constexpr uint32_t kTail = 1 << 2;  // entered by a jump: its caller is the caller of the one before
  static constexpr uint32_t kEmulated = 1 << 3;  // entered by a breakpoint handler's emulation of a call
  // Was on the stack when the flow began, or continues after a gap.
  static constexpr uint32_t kBeganBefore = 1 << 4;
  static constexpr uint32_t kAcrossGap = 1 << 5;      // flow inside it is missing
  static constexpr uint32_t kEndUnknown = 1 << 6;     // its end was not seen: in a gap, or at the end
  static constexpr uint32_t kSkipped = 1 << 7;        // left by a return or jump of a function it had called
  static constexpr uint32_t kResumed = 1 << 8;        // CPU track: its thread came back to this CPU
  static constexpr uint32_t kSwitchedOut = 1 << 9;    // CPU track: its thread went
  static constexpr uint32_t kUnbalanced = 1 << 10;    // entered by a return that matches no call
  static constexpr uint32_t kSignal = 1 << 11;        // user mode was entered elsewhere than it was left
  static constexpr uint32_t kClippedBegin = 1 << 12;  // began before the requested time
  static constexpr uint32_t kClippedEnd = 1 << 13;    // ended after it
  static constexpr uint32_t kPreempted = 1 << 14;     // of a RunSlice: its thread could have run on

  uint64_t id = 0;      // from 1; of one stream in order of beginning where nothing is missing
  uint64_t parent = 0;  // id of the slice around it on the same track; 0: none known
  uint32_t track = 0;
  uint32_t function = 0;
  Time begin = 0, end = 0;
  uint64_t instructions = 0;       // executed in it and in what it called
  uint64_t self_instructions = 0;  // in itself
  Addr entry = 0;                  // address it was entered at
  Addr call_site = 0;              // instruction that called it; 0: unknown
  uint32_t flags = 0;
  uint32_t version = 1;                          // of its function's text when it began
  OriginRef origin = kNoOrigin;                  // of the bytes at its entry
  Confidence confidence = Confidence::kCertain;  // worst of its own instructions
  int32_t cpu = -1;                              // where it began
  // Timeline only:
  uint32_t depth = 0;   // 0: outermost
  uint64_t folded = 0;  // slices below it that were folded
};

// A thread on a CPU.
struct RunSlice {
  int32_t cpu = -1, pid = -1, tid = -1;
  std::string comm;
  Time begin = 0, end = 0;
  uint32_t flags = 0;  // Slice::kClipped..., kPreempted
};

// A stretch of time in which the flow of a CPU (or thread) is not known, or trace was passed over.
struct GapSlice {
  size_t stream = 0;
  int32_t cpu = -1, tid = -1;
  Time begin = 0, end = 0;
  Code code = Code::kNone;
  std::string reason;
  Addr ip = 0, resume_ip = 0;
  uint64_t bytes = 0;        // of trace passed over
  uint64_t file_offset = 0;  // of its first byte, or where it was noticed
  uint32_t flags = 0;        // Slice::kClipped...
};

// ptwrite, power, transactions, loss of time, ...
struct EventMark {
  size_t stream = 0;
  int32_t cpu = -1, tid = -1;
  Event event;
};

// What one CPU executed at a site that changed.
struct PokeVisit {
  int32_t cpu = -1;
  Time last_old = kTimeMin;   // last run of text from before the change; kTimeMin: never
  Time first_new = kTimeMax;  // first run of text from after it; kTimeMax: never
  uint64_t breakpoints = 0;   // visits while the breakpoint was there
};

struct PokeSlice {
  uint32_t index = 0;  // into TextStore::pokes(): bytes, address
  Addr address = 0;
  Time time = 0;            // of the record
  Time begin = 0, end = 0;  // window: from the first to the last visit of the breakpoint; else time, time
  Mechanism mechanism = Mechanism::kUnknown;
  std::string action;  // "nop to jump"
  std::string symbol;  // "__schedule+0x114"
  uint64_t breakpoints = 0;
  std::vector<PokeVisit> visits;  // by CPU; only CPUs that ran it
};

// Text that came and went; a snapshot is a copy that was made of it, at an instant from `begin` to `end`.
struct LifetimeSlice {
  enum class Kind : uint8_t { kBpf, kModule, kOutOfLine, kSnapshot };
  Kind kind = Kind::kBpf;
  std::string name{};
  AddrRange range{};
  Time begin = kTimeMin, end = kTimeMax;  // kTimeMin: before the capture; kTimeMax: still there
  // Certainly present in between: modules come and go without a record. Empty: from begin to end.
  TimeBounds seen{kTimeMax, kTimeMin};
  uint32_t bpf_id = 0;
  std::string bpf_tag{};
};
std::string_view lifetime_kind_name(LifetimeSlice::Kind kind);

struct CounterPoint {
  enum class Kind : uint8_t {
    kTextVersion,   // text changes so far
    kInstructions,  // instructions per microsecond from here to the next point, on `cpu`
    kCoverage,      // percent of traced time that was decoded, likewise
  };
  Kind kind = Kind::kTextVersion;
  int32_t cpu = -1;
  Time time = 0;
  double value = 0;
};

// A straight run of executed instructions (detail).
struct BlockSlice {
  size_t stream = 0;
  int32_t cpu = -1, tid = -1;
  Time begin = 0, end = 0;  // times known before and after it (Step::time; kTimeMax: unknown)
  uint64_t in = 0;          // slice of the CPU track (thread track without one) it belongs to
  FlowPiece piece;
  uint64_t id = 0;            // from 1; of one stream, in the order they ran
  uint64_t instructions = 0;  // in those before it: numbers instructions, from 1 on
};

struct TimelineOptions {
  PipelineOptions pipeline;
  bool cpu_tracks = true, thread_tracks = true;
  bool detail = false;                       // straight runs, within pipeline.time
  TimeBounds detail_time;                    // where to keep straight runs
  std::vector<TimeBounds> detail_windows{};  // sorted, apart: only there; empty: all of detail_time
  TimeBounds counted{};                      // instructions of this time are counted, whatever is decoded
  bool calls = true;  // false: no slices, functions or tracks; all else is the same, and BlockSlice::in is 0
  // Gaps as they are delivered, and whether they are too many to go on, which all workers ask.
  std::function<void(const Gap&, const Stream&)> on_gap{};
  std::function<bool()> enough{};
  // Whether there are slices, blocks, runs and events of a thread, and the gaps in which it may have run; not set: of all.
  std::function<bool(int32_t pid, int32_t tid)> wants_thread{};
  bool flow = true;  // false: nothing is decoded: only what records alone say (pokes, lifetimes)
};

struct FlowOps;
struct CallSpan;
struct CallSums {
  Time begin;  // of the first call at the earliest
  const CallSpan& span;
  const FlowOps& of;
};

// PipelineOptions::time, when it is set, is exact here: nothing outside of it is delivered, slices that
// extend beyond its ends are cut there (Slice::kClipped...), and only instructions within are counted. The
// time of an instruction (Step::time) decides.
//
// Takes the parts as they become known. Called by one thread at a time; the order depends on the capture
// alone. Returning true from stopped() ends the work early.
class TimelineSink {
 public:
  virtual ~TimelineSink() = default;
  virtual void begin(const Capture&) {}
  virtual void track(const TimelineTrack&) {}
  virtual void function(const TimelineFunction&) {}
  virtual void slice(const Slice&) {}
  virtual void run(const RunSlice&) {}
  virtual void gap(const GapSlice&) {}
  virtual void event(const EventMark&) {}
  virtual void block(const BlockSlice&) {}
  virtual void poke(const PokeSlice&) {}          // after all slices
  virtual void lifetime(const LifetimeSlice&) {}  // after all slices
  virtual void counter(const CounterPoint&) {}    // after all slices; by kind, CPU, time
  virtual bool stopped() const { return false; }
  // Blocks before the slice that they are in ends; their end, id and number are then not known.
  virtual bool takes_blocks_at_once() const { return false; }
  // Only sums of slices are wanted: tracks, functions, gaps, and slices or sums of them are complete, and nothing else
  // is. Ids distinguish slices and say nothing more, and functions have their numbers in no certain order.
  virtual bool takes_sums() const { return false; }
  // Whether all there is to know of slices on this track, between these times, are their sums.
  virtual bool takes_sum(uint32_t /*track*/, Time /*begin*/, Time /*end*/) const { return false; }
  // Slices that ended, all of them below the slice `parent`.
  virtual void sum(const CallSums&, uint32_t /*track*/, uint64_t /*parent*/) {}
};

struct TimelineSummary {
  enum class Clock : uint8_t { kNanoseconds, kInstructions };
  Clock clock = Clock::kNanoseconds;
  Time begin = 0, end = 0;  // of everything that has a time
  uint64_t instructions = 0;
  uint64_t slices = 0, gaps = 0, stretches = 0;
  bool text_missing = false;  // is the reason of some gaps
  // Points where threads may be joined wrongly because segments were too long to wait for.
  uint64_t reordered = 0;
};

// What a timeline of it is measured in: nanoseconds where anything in the capture gives its trace a time.
TimelineSummary::Clock timeline_clock(const Capture& capture);

// Decodes `capture` and fills `sink`.
Result<TimelineSummary> run_timeline(const Capture& capture, const TimelineOptions& options,
                                     TimelineSink& sink,
                                     const std::function<void(const PipelineProgress&)>& progress = {});

// Everything of a capture, in memory.
struct Timeline {
  TimelineSummary summary;
  std::vector<TimelineTrack> tracks;        // by id
  std::vector<TimelineFunction> functions;  // by id
  std::vector<Slice> slices;                // by track, then in the order they began: parents before children
  std::vector<RunSlice> runs;               // by CPU, then time
  std::vector<GapSlice> gaps;               // by stream, then time
  std::vector<EventMark> events;
  std::vector<BlockSlice> blocks;
  std::vector<PokeSlice> pokes;
  std::vector<LifetimeSlice> lifetimes;
  std::vector<CounterPoint> counters;

  // What folding removed: slices shorter than `folded_below` ns (and, of those as long as that, with fewer
  // instructions than folded_below_instructions). 0 slices: nothing.
  uint64_t folded = 0;
  Time folded_below = 0;
  uint64_t folded_below_instructions = 0;
  uint64_t events_left_out = 0, blocks_left_out = 0;  // beyond the limits

  // Name of a slice: the function's, with " ·v3" where its text has more than one version.
  std::string slice_name(const Slice& s) const;
};

struct TimelineLimits {
  uint64_t slices = 1'000'000;  // 0: no limit
  uint64_t events = 200'000;
  uint64_t blocks = 1'000'000;
};

Result<Timeline> make_timeline(const Capture& capture, const TimelineOptions& options,
                               const TimelineLimits& limits = {},
                               const std::function<void(const PipelineProgress&)>& progress = {});

// "worker·v2" of a function and version.
std::string versioned_name(const TimelineFunction& function, uint32_t version);
// "async syscall tail", words for Slice::flags.
std::string slice_flag_names(uint32_t flags);

}  // namespace asof
