// SpanFinder: finds the spans of a chunk (call_span.h). It follows the ops with a CallTracker of its own, on a stack
// whose lowest frame stands for all that is not known: the function where the flow is, and its callers. An op for which
// that could make a difference is left to whoever knows; from there on it begins anew. What can be checked later
// is assumed instead: a return that goes to no call of the chunk is taken for a jump, if its target shows that, and
// the span says to which address no unknown frame may return.
//
// Calls that are open at such an op, or at the end, are no part of a span: the spans lie between them.
//
//   ret  call A  [call B  ret]  call C  [call D  ret  call E  ret]  gap
//
// One for each worker. What it finds depends on the chunk alone.
#pragma once
#include <optional>
#include <utility>
#include <vector>

#include "decoder/calls/call_tracker.h"
#include "decoder/calls/sum_tree.h"

namespace asof {

class SpanFinder final : TimelineSink {
 public:
  SpanFinder(const Capture& capture, bool has_time);
  // Fills in the spans of `ops`.
  void read(size_t stream, FlowOps& ops);

 private:
  static constexpr size_t kNone = SIZE_MAX;
  static constexpr size_t kLeast = 6;  // ops of a span that is worth it

  // A frame of the stack; the first one stands for what is unknown.
  struct Level {
    size_t opened = 0, body = 0;              // its first op, and the one after that which began its function
    size_t ended_before = 0, ended_body = 0;  // ended calls, then
    uint32_t function = 0;
    uint64_t count = 0;  // instructions until body
  };
  struct Question {
    size_t op = 0;
    Addr back = 0;
  };

  void slice(const Slice& s) override;
  bool known(const FlowOp& op);
  bool known_entry(const FlowOp& op);
  bool known_branch(const FlowOp& op);
  bool known_return(const Landing& to);
  bool known_jump(const Landing& to) const;
  bool known_far_return(const Landing& to) const;
  bool can_open(const Landing& to) const;
  // The innermost boundary; kNone: it may be below.
  size_t floor() const;
  size_t find_function(uint32_t function, size_t floor) const;

  void follow(const FlowOp& op);
  void start_body(Level& level) const;
  void leave_out(const FlowOp& op);
  void begin_at(size_t op);
  void emit(size_t end);
  void add_span(size_t level, size_t begin, size_t end, size_t first_ended, size_t ended);
  void add_times(CallSpan& span) const;

  const bool has_time_;
  TimelineOptions options_;
  CallTracker tracker_;
  FlowOps* chunk_ = nullptr;
  size_t stream_ = 0, at_ = 0;        // op
  bool flow_ = false;                 // there are levels
  size_t pending_ = kNone;            // the op that waits for an entry
  std::vector<Level> levels_;         // by depth
  std::vector<EndedCall> ended_;      // children before their callers
  std::vector<uint64_t> child_time_;  // of open calls, by depth
  std::vector<Question> questions_;
  SumTree tree_;
};

}  // namespace asof
