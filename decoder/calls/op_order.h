// OpOrder: ops of all streams in one order, by time, ties by stream. As with lines of `asof decode`
// (tools/output/merge.h), what is before the start of the current segment can be passed on.
//
// Where a span is not taken and its ops were left out (call_stub.h), the whole chunk is asked for.
//
// A span (call_span.h) is taken at once when it is the turn of its last op. Its first op and those of other streams come
// when they would anyway, so only the ops of a span move among those of other streams.
#pragma once
#include <algorithm>
#include <bit>
#include <deque>
#include <queue>
#include <vector>

#include "decoder/calls/call_stub.h"

namespace asof {

// Taker: op(stream, chunk, op), span_begins(stream, chunk, span) and span_ends(stream, chunk, span), as CallTracker has
// them. Where ops may be left out, whole(stream, chunk, at) gives a chunk the ops that were left out of it; where it cannot, of the op `at` only,
// something else.
template <class Taker>
class OpOrder {
 public:
  static constexpr uint64_t kMaxWaiting =
      256 << 20;  // bytes (size_of()) of ops of one stream that wait for another's

  OpOrder(size_t streams, Taker& taker, uint64_t max_waiting = kMaxWaiting)
      : queues_(streams), taker_(taker), max_waiting_(max_waiting) {}

  void add(size_t stream, FlowOps ops, Time watermark) {
    if (queues_.size() == 1) {
      Queue& q = queues_[0];
      q.next = q.span = 0;
      while (q.next < ops.ops.size()) step(stream, q, ops);
      return;
    }
    if (!ops.ops.empty()) {
      Queue& q = queues_[stream];
      const uint64_t size = size_of(ops);
      waiting_ += size;
      q.chunks.push_back({std::move(ops), size});
      if (q.chunks.size() == 1) push(stream);
    }
    while (earliest() && heads_.top().time < watermark) advance(watermark);
    watermark_ = watermark;
    if (waiting_ > max_waiting_ && spans_ && earliest()) {
      single_ = true;
      without_spans();
    }
    while (waiting_ > max_waiting_ && earliest()) {
      ++forced_;
      advance(heads_.top().time + 1);
    }
  }
  void finish() {
    while (earliest()) advance(kTimeMax);
  }
  // Takes the span of a stream op by op instead.
  void break_span(size_t stream) { break_span(stream, current_); }
  // From here on ops are taken one by one, in the order they would have without spans; until take_spans().
  void take_single() { without_spans(); }
  void take_spans() { spans_ = !single_; }
  uint64_t forced() const { return forced_; }

 private:
  struct Waiting {
    FlowOps ops;
    uint64_t size = 0;
  };
  struct Queue {
    std::deque<Waiting> chunks;
    size_t next = 0, span = 0;  // of the first chunk
    bool in_span = false;
    uint32_t heads = 0;  // of this stream, so far: only the latest counts
    Time last = kTimeMin;
  };
  struct Head {
    Time time;
    size_t stream;
    uint32_t number;
    bool operator>(const Head& o) const { return std::pair(time, stream) > std::pair(o.time, o.stream); }
  };

  // The memory of its ops, about, whether some were left out or not: the order must not depend on that.
  static uint64_t size_of(const FlowOps& ops) {
    return std::bit_ceil(whole_size(ops)) * sizeof(FlowOp) +
           std::bit_ceil(ops.pieces.size()) * sizeof(FlowPiece) + sizeof ops;
  }
  // When it is the turn of what is next.
  static Time turn(const Queue& q, const FlowOps& chunk) {
    return std::max(q.last, q.in_span ? chunk.spans[q.span].last : chunk.ops[q.next].time);
  }
  void push(size_t stream) {
    Queue& q = queues_[stream];
    heads_.push({turn(q, q.chunks.front().ops), stream, ++q.heads});
  }
  // False: there is none.
  bool earliest() {
    while (!heads_.empty() && heads_.top().number != queues_[heads_.top().stream].heads) heads_.pop();
    return !heads_.empty();
  }
  void take_op(size_t stream, Queue& q, FlowOps& chunk) {
    make_whole(stream, q, chunk);
    taker_.op(stream, chunk, chunk.ops[q.next++]);
  }
  // If the next op stands for those of a span.
  void make_whole(size_t stream, Queue& q, FlowOps& chunk) {
    if constexpr (requires { taker_.whole(stream, chunk, q.next); }) {
      if (chunk.ops[q.next].kind != FlowOp::Kind::kSpan) return;
      const size_t next = whole_index(chunk, q.next);
      if (taker_.whole(stream, chunk, q.next)) q.next = next;
    }
  }
  void step(size_t stream, Queue& q, FlowOps& chunk) {
    if (q.in_span) {
      const CallSpan& span = chunk.spans[q.span++];
      q.in_span = false;
      q.next = span.end;
      return taker_.span_ends(stream, chunk, span);
    }
    while (q.span < chunk.spans.size() && chunk.spans[q.span].begin < q.next) ++q.span;
    if (spans_ && q.span < chunk.spans.size() && chunk.spans[q.span].begin == q.next) {
      q.in_span = taker_.span_begins(stream, chunk, chunk.spans[q.span]);
      if (q.in_span) return;
      ++q.span;
    }
    take_op(stream, q, chunk);
  }
  // Takes from the earliest stream what is before `until` and before every other stream.
  void advance(Time until) {
    const size_t stream = heads_.top().stream;
    heads_.pop();
    Queue& q = queues_[stream];
    while (!q.chunks.empty()) {
      FlowOps& chunk = q.chunks.front().ops;
      while (q.next < chunk.ops.size()) {
        const Time t = turn(q, chunk);
        current_ = {t, stream, 0};
        if ((t >= until && until != kTimeMax) || (earliest() && current_ > heads_.top())) return push(stream);
        q.last = t;
        step(stream, q, chunk);
      }
      drop_chunk(q);
    }
  }
  void drop_chunk(Queue& q) {
    waiting_ -= q.chunks.front().size;
    q.chunks.pop_front();
    q.next = q.span = 0;
  }
  void break_span(size_t stream, Head until) {
    Queue& q = queues_[stream];
    if (!q.in_span) return;
    taker_.span_broken(stream);
    q.in_span = false;
    FlowOps& chunk = q.chunks.front().ops;
    make_whole(stream, q, chunk);
    const size_t end = chunk.spans[q.span++].end;
    while (q.next < end && until > Head{turn(q, chunk), stream, 0}) {
      q.last = turn(q, chunk);
      take_op(stream, q, chunk);
    }
    // The last op of a span is not due, or the span would have ended; but in a damaged block stream its ops need not be
    // what it said.
    if (q.next == chunk.ops.size()) drop_chunk(q);
    ++q.heads;
    if (!q.chunks.empty()) push(stream);
  }
  // From here on, which ops have come decides as well.
  void without_spans() {
    for (size_t i = 0; i < queues_.size(); ++i) break_span(i, {watermark_, 0, 0});
    spans_ = false;
  }

  std::vector<Queue> queues_;
  std::priority_queue<Head, std::vector<Head>, std::greater<>> heads_;
  Taker& taker_;
  const uint64_t max_waiting_;
  Head current_{kTimeMin, 0, 0};
  Time watermark_ = kTimeMin;  // of the last chunk that was added
  bool spans_ = true;
  bool single_ = false;  // to the end
  uint64_t waiting_ = 0, forced_ = 0;
};

}  // namespace asof
