// FlowOps: what a call tracker must know of a chunk, and nothing else: where the flow leaves one function for
// another, by what kind of branch, when, and how many instructions ran in between. Made by the workers in
// parallel, one FlowReader each; a chunk's ops depend on that chunk alone, so they are the same for every
// number of workers. The rest (which return belongs to which call) is serial and small: call_stack.h.
#pragma once
#include <tsl/robin_map.h>

#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

#include "arch/arch.h"
#include "arch/chunk_items.h"
#include "decoder/calls/call_span.h"
#include "decoder/io/addr_key.h"
#include "decoder/model/capture.h"
#include "decoder/model/flow_piece.h"
#include "decoder/model/symbol_epochs.h"

namespace asof {

struct FlowOp {
  enum class Kind : uint8_t {
    kPoint,      // no event: time and instructions advance
    kExit,       // the chunk ends after a branch: `branch` at `from`; the next op says where it went
    kEntry,      // flow at `to`: the first of a chunk, or after something else than a branch
    kCall,       // from, to, back
    kReturn,     // from, to
    kJump,       // from, to: into another function by any other branch, or without one
    kFarCall,    // system call, software interrupt
    kFarReturn,  // from interrupt, exception or system call
    kAsync,      // from: interrupted address, to: handler (0: not traced)
    kGap,        // item: index into FlowOps::gaps
    kStart,      // tracing begins at `to`
    kStop,       // tracing ends; `branch` led out (kNone: no branch, or one of the chunk before)
    kEvent,      // item: index into FlowOps::events
    kVisit,      // text that changes ran; item: index into FlowOps::visits
    kSpace,      // the kernel changed the address space at `from`
    kBlock,      // detail: a straight piece; item: index into FlowOps::pieces
    kSpan,       // all ops of a span, which are left out (call_stub.h)
  };
  Kind kind = Kind::kPoint;
  BranchKind branch = BranchKind::kNone;
  Confidence confidence = Confidence::kCertain;  // the worst since the op before
  uint8_t flags = 0;                             // of the step at `to` (Step::kAfterGap, kAsyncEntry)
  uint32_t instructions = 0;                     // executed since the op before
  Time time = kTimeMin;                          // Step::time; kTimeMin: unknown
  Addr from = 0, to = 0;
  Addr back = 0;                   // where a call returns to
  const Symbol* symbol = nullptr;  // of `to`, or of `from` where there is no `to`
  const Symbol* left = nullptr;    // of `from`
  Space space = kKernelSpace;      // of `to`; kNoSpace: of the thread that runs, whoever that is
  OriginRef origin = kNoOrigin;    // of the bytes at `to`
  uint32_t item = 0;
};

// What leaving by a branch of this kind means.
FlowOp::Kind flow_op_kind(BranchKind branch);

// Execution of a site that was poked.
struct FlowVisit {
  Addr site = 0;
  TimeBounds valid;   // of the block's bytes
  uint8_t first = 0;  // byte at the site, as executed
};

struct FlowOps {
  std::vector<FlowOp> ops;
  std::vector<Gap> gaps;
  std::vector<Event> events;
  std::vector<FlowPiece> pieces;
  std::vector<FlowVisit> visits;
  // Only where sums are wanted: apart, by where they begin (span_finder.h).
  std::vector<CallSpan> spans;
  std::vector<SumKey> keys;
  std::vector<uint32_t> functions;  // by key, once they are numbered
  size_t record = 0;                // of the block stream, where ops of spans are left out
  uint64_t pieces_left_out = 0;     // straight pieces that were counted only, and the ops of them

  // As much as vectors that grew have, so that the order in which streams are joined, which depends on it, is
  // the same whoever made them, and whatever was left out.
  uint64_t bytes() const {
    const auto grown = [](const auto& v, uint64_t more = 0) {
      return std::bit_ceil(v.size() + more) * sizeof v[0];
    };
    return grown(ops, pieces_left_out) + grown(gaps) + grown(events) + grown(pieces, pieces_left_out) +
           grown(visits) + sizeof *this;
  }
  uint64_t span_bytes() const {
    uint64_t bytes = spans.capacity() * sizeof(CallSpan) + keys.capacity() * sizeof(SumKey);
    for (const CallSpan& s : spans)
      bytes += s.sums.capacity() * sizeof(SumNode) + s.not_back.size() * sizeof(Addr);
    return bytes;
  }
};

// Shared by the readers; const while they work.
struct FlowJob {
  FlowJob(const Capture& c, std::vector<TimeBounds> detail_windows, TimeBounds counted_time = {});
  const Capture& capture;
  SymbolEpochs epochs;
  std::vector<Addr> poked;         // addresses of pokes, sorted, each once
  std::vector<TimeBounds> detail;  // straight pieces are kept within; sorted, apart
  TimeBounds counted{};            // instructions of other times are not counted
};

class FlowReader {
 public:
  explicit FlowReader(const FlowJob& job) : job_(job) {}
  // `count_pieces`: straight pieces are only counted. All that is not about them is the same.
  void read(const Chunk& chunk, FlowOps& out, bool count_pieces = false);

 private:
  struct Named {
    const Symbol* symbol = nullptr;
    TimeBounds valid{kTimeMax, kTimeMin};
  };
  // What a visit of a run does, found out once: its ops, where it is left. Fixed: names of its code hold for
  // all time, as its bytes do, and it changes no address space; so only what led to it, and when, differs.
  struct alignas(64) RunFacts {
    enum class State : uint8_t { kUnknown, kFixed, kOther };
    // What every visit reads comes first, in one line of the cache.
    const Symbol* first = nullptr;  // of its first block
    const Symbol* end = nullptr;    // where its last block is
    Addr from = 0, back = 0;        // its last instruction, and what is behind that
    const Block* block = nullptr;   // its last one
    uint32_t ops = 0;               // index into memo_
    uint32_t after = 0;             // instructions after the last op
    uint16_t op_count = 0;
    uint16_t block_count = 0;  // instructions of its last block
    BranchKind kind = BranchKind::kNone;
    State state = State::kUnknown;
    FlowOp::Kind leaves = FlowOp::Kind::kJump;  // by its last branch
    Confidence confidence = Confidence::kCertain;
    uint8_t blocks = 0;          // how many
    Addr ip = 0;                 // of its first block
    Space space = kKernelSpace;  // of its first block
    OriginRef origin = kNoOrigin;
  };
  const Symbol* name(Space space, Addr ip, Time t);
  FlowOp& add(FlowOp::Kind kind, Time t);
  bool in_detail(Time t);
  void items_before(ChunkItems& items, size_t index);
  void on_gap(const Gap& g);
  void on_event(const Event& e);
  void entries(const Chunk& chunk, size_t from, size_t to);
  bool fixed_run(const StepList& steps, StepCode code, Time t);
  void run(const StepList& steps, StepCode code, Time t, size_t from_block = 0);
  void find_facts(const StepList& steps, StepCode code, RunFacts& facts);
  bool names_hold(const Block& b) const;
  void step(const Step& s);
  void enter(const Step& s);
  void branch_to(Addr to, Space space, const Symbol* symbol, Time t, FlowOp::Kind kind);
  Space space_of(Addr ip) const;
  // The pending branch went to `to` (0: unknown).
  void complete(Addr to, Space space, Time t);
  void visits(const Step& s);
  void piece(const Step& s);

  const FlowJob& job_;
  bool inside_run_ = false;  // finds out what a run does: no detail
  bool count_pieces_ = false;
  TimeBounds near_{kTimeMax, kTimeMin};  // times for which near_wanted_ is the answer
  bool near_wanted_ = false;
  bool detailed_ = false;  // the step before was within
  tsl::robin_map<AddrKey, Named, AddrKeyHash> names_;
  const RunTable* table_ = nullptr;  // whose runs runs_ is of
  std::vector<RunFacts> runs_;       // by id
  std::vector<FlowOp> memo_;         // ops of runs
  size_t loose_ = 0, time_ = 0;      // of the chunk: next loose step; time marks up to here are passed
  std::vector<FlowOp> scratch_;      // the memory of the ops of the chunk before
  Time last_time_ = kTimeMin;        // of the last entry
  FlowOps* out_ = nullptr;
  Step last_;
  Addr last_from_ = 0, last_back_ = 0;  // its last instruction, and what is behind that; 0: not known yet
  bool has_last_ = false;               // the flow continues from last_
  FlowOp::Kind leaves_ = FlowOp::Kind::kJump;  // by what last_ is left, if by a branch
  const Symbol* in_ = nullptr;                 // where last_ is
  uint32_t instructions_ = 0;
  size_t piece_ = SIZE_MAX;  // of last_, in the chunk's pieces; SIZE_MAX: it has none
  Confidence worst_ = Confidence::kCertain;
};

}  // namespace asof
