// CycleWalk: what CYC packets say of the flow of one stream, chunk after chunk (EventKind::kCycles).
//
// A count belongs to a place only within bounds: when it was taken, everything before the place had retired, and of
// what comes behind, at most what lies before the next decision of the trace, whose packet was not written yet.
// So the steps between two counts are, in this order:
//
//   count k | may have retired before count k | between the counts | count k+1 | may have retired before count k+1 |
//
// A span is the time from one count to the next; both doubtful parts are shared by two spans. (What retires in the very
// cycle of a count is on either side.)
#pragma once
#include <cstdint>
#include <vector>

#include "arch/arch.h"
#include "decoder/model/capture.h"

namespace asof {

class CycleWalk {
 public:
  virtual ~CycleWalk() = default;
  void take(const Chunk& chunk);
  // Nothing more comes.
  void finish() { lose(); }

 protected:
  // The first count of a stretch: what follows is between counts.
  virtual void begin() = 0;
  // Since begin(): a step, or a part of one. `doubtful`: it may have retired before the last count.
  virtual void step(const Step& s, bool doubtful) = 0;
  // A count, after all steps so far. `event`: of the chunk that is being taken.
  virtual void count(uint64_t cycles, size_t event) = 0;
  // No further step is doubtful, up to the next count.
  virtual void settled() = 0;
  // The flow, or the counting, is interrupted: there is no span from the last count on.
  virtual void end() = 0;

 private:
  void on_event(const Event& e, size_t index);
  void on_count(const Event& e, size_t index);
  void settle();
  void lose();

  bool open_ = false, doubtful_ = false;
  size_t segment_ = SIZE_MAX;
};

// Whether the trace must say how a step ended.
bool is_decision(const Step& s);
bool has_cycles(const Chunk& chunk);
// I-DATA-013: cycles were asked for, and there were none.
Error no_cycles(const Capture& capture);

// Spans within one chunk, for printing: those that reach beyond it are left out.
struct CycleSpan {
  size_t event = 0;  // of the chunk, that ends it
  uint64_t cycles = 0;
  uint64_t instructions = 0;     // between the places of both counts, as perf counts them
  uint64_t least = 0, most = 0;  // that may have retired in this time
};
std::vector<CycleSpan> cycle_spans(const Chunk& chunk);

}  // namespace asof
