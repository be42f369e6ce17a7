// The one contract between decoder/ and the machines: split a stream, decode a segment. Called per segment,
// never per instruction, so virtual functions cost nothing. Backends keep no state between segments but
// caches of text, and share only const data and what was found out about unchanging text: entries that are
// published atomically and never change.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arch/steps.h"
#include "arch/stream.h"
#include "textstore/address.h"
#include "textstore/code.h"
#include "textstore/text_store.h"
#include "textstore/time.h"

namespace asof {

enum class EventKind : uint8_t {
  kTraceStart,  // ip
  kTraceStop,   // ip where tracing stopped, or 0
  kAsync,       // ip: interrupted address, a: handler (0: tracing stopped)
  kOverflow,    // ip: where tracing goes on, or 0
  kExecMode,    // a: 16, 32, 64; b: interrupt flag
  kTsxBegin,
  kTsxCommit,
  kTsxAbort,
  kPaging,       // a: CR3, b: non-root
  kVmcs,         // a: base
  kPtwrite,      // ip (0: unknown), a: payload, b: payload bytes
  kMwait,        // a: hints, b: extensions
  kPwre,         // a: resolved C-state, b: sub C-state | hw << 8
  kExstop,       // ip or 0
  kPwrx,         // a: last core C-state, b: deepest | wake reason << 8
  kCbr,          // a: core:bus ratio
  kMaintenance,  // MNT: a: payload
  kBbp,
  kBip,
  kBep,              // PEBS block: a: type or payload, b: size or id
  kCfe,              // a: type, b: vector
  kEvd,              // a: type, b: payload
  kTraceStopPacket,  // TRACESTOP region entered
  kPsb,              // ip or 0; Intel PT: a: core:bus ratio, b: kInterruptsOn, kInterruptsOff; 0: not said
  kTraceEvent,       // CoreSight: a: bits of the trace unit's event outputs that fired; ip or 0
  kContext,          // CoreSight: a: context ID, b: exception level | non-secure << 2 | AArch64 << 3; ip or 0
  // a: core cycles since the one before it (b 1: not all were counted). All steps before it had retired then, and of
  // those behind at most those up to the next decision of the trace. Only with DecodeOptions::cycles.
  kCycles,
};

// Of kPsb: RFLAGS.IF there, with Event Trace.
inline constexpr uint64_t kInterruptsOff = 1, kInterruptsOn = 2;

struct Event {
  EventKind kind;
  uint32_t step = 0;  // happened before this entry of the same chunk's steps
  Time time = kTimeMin;
  Addr ip = 0;
  uint64_t a = 0;
  uint64_t b = 0;
  uint64_t offset = 0;  // stream offset of the packet
};

// A stretch of trace without flow.
struct Gap {
  uint32_t step = 0;            // before this entry of the same chunk's steps
  uint32_t after = 0;           // so many of the chunk's events in front of that entry happened first
  uint64_t begin = 0, end = 0;  // stream offsets: bytes of trace passed over (begin == end: none)
  TimeBounds time;              // when it happened, as far as known
  Addr ip = 0;                  // where the flow was lost (0: unknown)
  Addr resume_ip = 0;           // where it goes on (0: unknown, next sync point)
  Code code = Code::kNone;      // what each means: tools/output/catalogue_entries.inc
  std::string reason;           // evidence, one line
};

// A part of a decoded segment, in execution order.
struct Chunk {
  size_t stream = 0;
  size_t segment = 0;  // Segment::index
  bool last = false;   // no further chunk of this segment
  Time segment_start =
      kTimeMin;  // set by the pipeline: nothing of this segment, or of a later one by time, is before
  uint64_t segment_begin = 0, segment_end = 0;  // set by the pipeline: its trace
  StepList steps;
  std::vector<Event> events;
  std::vector<Gap> gaps;
  // Of a block stream: the number of its record; instead of steps, events and gaps what they add up to, if that is wanted
  // (DecodeOptions::calls).
  std::vector<uint8_t> calls;
  size_t calls_of = 0;

  // Empties it; its memory stays.
  void clear() {
    stream = segment = 0;
    last = false;
    segment_start = kTimeMin;
    segment_begin = segment_end = 0;
    steps.clear();
    events.clear();
    gaps.clear();
  }
};

class ChunkSink {
 public:
  virtual ~ChunkSink() = default;
  // An empty chunk to fill, if possible with the memory of one that is done with: fresh pages cost more than
  // what is written to them.
  virtual Chunk spare() { return {}; }
  // May block. The chunk's blocks stay valid as long as the SegmentDecoder that made them.
  virtual void take(Chunk&& chunk) = 0;
};

// Trace bytes from one sync point to the next: the unit of parallel work.
struct Segment {
  size_t stream = 0;
  size_t index = 0;    // ascending within the stream, the same wherever the search for segments began
  uint64_t begin = 0;  // of its sync point (PSB), stream offset
  uint64_t end = 0;    // of the next one, or of the stretch
  uint64_t tail_end =
      0;  // end of the next sync group (PSBEND): where the flow must arrive; == end at a stretch's end
  Time start_time = kTimeMin;  // by its sync group; kTimeMin: none
  Time end_time = kTimeMin;    // it may hold flow until then, where the start of the next one does not say it
  std::optional<Gap> before;   // loss in front of it: no sync, truncated, ...
  bool overwritten = false;    // somewhere in it trace of another time begins
  bool only_before = false;    // it is cut to its begin: only the loss in front of it is wanted
};

enum class TextAt : uint8_t {
  kAsof,
  kFirst,
  kLast
};  // kFirst/kLast: one state of the text, as other tools have

struct DecodeOptions {
  TextAt text_at = TextAt::kAsof;
  Time clock_error = 200;                  // ns, each way, added to every time bound
  size_t chunk_steps = size_t{64} * 1024;  // a chunk is given away when its steps have this many entries
  uint32_t max_forks = 1024;      // hypotheses followed for one ambiguous fetch, nested ones included
  uint32_t work_divisor = 1;      // of the budget of work (arch/walk/work.h): how far a capture is from it
  uint32_t horizon = 1024;        // TNT bits, TIPs and events a hypothesis is followed for
  bool reference_engine = false;  // libipt / OpenCSD instead of our own flow
  bool block_cache = true;        // off: every visit decodes anew (tests)
  bool sum_runs = false;          // fill in StepList::sums() where that costs less than to count afterwards
  bool calls = false;             // sums of calls instead of steps, where a block stream has them
  bool cycles = false;            // give EventKind::kCycles, where the trace has CYC packets; slower
};

// Not thread-safe; one per worker. Its caches live from one segment to the next.
class SegmentDecoder {
 public:
  virtual ~SegmentDecoder() = default;
  virtual void decode(const Segment& segment, ChunkSink& sink) = 0;
};

// Segments of one stream, in order, found as they are asked for: memory does not grow with the trace. Every
// byte is in one, or in a `before` gap, but padding, and timing before all sync points. Not thread-safe.
class SegmentSource {
 public:
  virtual ~SegmentSource() = default;
  // nullopt: that was all.
  virtual std::optional<Segment> next() = 0;
};

class PacketReader;

// One machine's view of one capture: const after construction.
class Arch {
 public:
  virtual ~Arch() = default;
  virtual std::string_view name() const = 0;
  // Those that begin at stream offset `from` or later; no more than a few of those before it are read. `stream` must
  // outlive what is returned.
  virtual std::unique_ptr<SegmentSource> segments(const Stream& stream, size_t stream_index,
                                                  uint64_t from) const = 0;
  // arch/packets.h. nullptr: there is no trace, only flow (block streams). `stream` and this must outlive what is
  // returned.
  virtual std::unique_ptr<PacketReader> packets(const Stream& stream, size_t stream_index) const;
  // All of them; for streams that are known to be small.
  std::vector<Segment> split(const Stream& stream, size_t stream_index) const {
    std::vector<Segment> all;
    const auto source = segments(stream, stream_index, 0);
    while (auto segment = source->next()) all.push_back(*std::move(segment));
    return all;
  }
  virtual std::unique_ptr<SegmentDecoder> decoder(std::span<const Stream> streams, const TextStore& text,
                                                  const DecodeOptions& options) const = 0;
  // Bytes of trace that one decoder should decode consecutively, because it remembers the paths it took last.
  // 0: it does not matter.
  virtual uint64_t preferred_batch_bytes() const { return 0; }
};

}  // namespace asof
