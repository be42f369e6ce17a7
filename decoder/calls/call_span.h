// CallSpan: ops in a row, of one chunk, after which the call stack is as it was before them: every call in them has
// returned. The worker that reads a chunk finds its spans and adds up what they did (span_finder.h). Whoever knows the
// stack takes a span at once (call_tracker_spans.cpp), where that is the same as taking its ops one by one.
#pragma once
#include <cstdint>
#include <vector>

#include "arch/block.h"

namespace asof {

struct Symbol;

// A version of a function, as a worker names it: it cannot know the number that the function will have.
struct SumKey {
  const Symbol* symbol = nullptr;  // nullptr: the function has only an address
  Space space = kKernelSpace;
  Addr address = 0;
  uint32_t version = 1;
};

// All calls of one function by the same callers.
struct SumNode {
  uint32_t key = 0;   // index into FlowOps::keys
  uint32_t size = 1;  // nodes of its tree: itself, and behind it those it called
  uint64_t calls = 0;
  uint64_t instructions = 0, time = 0;  // of its own
};

struct CallSpan {
  size_t begin = 0, end = 0;  // of FlowOps::ops
  size_t relies = 0;          // on so many ops before it: the stack must not be another one since
  size_t left_out = 0;        // ops that are not there: what stands for all is one of kind kSpan
  // What the tracker's state becomes. Times are of the trace; where it has none, instructions since the span began.
  uint64_t instructions = 0;
  Time first = kTimeMin, last = kTimeMin;        // of its first op, and the latest
  Time last_open = 0, last_close = 0;            // of its calls
  uint64_t steps = 0;                            // how often the time changed after the first op
  Time step = 0;                                 // CallTracker::Cpu::step, from 0 before the second op
  Confidence confidence = Confidence::kCertain;  // of instructions in the function where it began
  bool follows_records = false;                  // a switch record within may count
  uint32_t depth = 0;                            // most frames on top of that function
  std::vector<Addr> not_back;                    // assumed: no frame below returns there
  // What its calls add up to.
  uint64_t calls = 0;
  uint64_t call_instructions = 0, call_time = 0;  // of the outermost calls
  std::vector<SumNode> sums;
};

}  // namespace asof
