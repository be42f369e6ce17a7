#include "decoder/calls/op_order.h"

#include <gtest/gtest.h>

#include <string>

namespace asof {
namespace {

FlowOp op_at(Time time, FlowOp::Kind kind = FlowOp::Kind::kPoint) {
  FlowOp op;
  op.kind = kind;
  op.time = time;
  return op;
}

// One op that stands for those of a span, which are said to last from 10 to 100.
FlowOps lying_span() {
  FlowOps ops;
  ops.ops.push_back(op_at(10, FlowOp::Kind::kSpan));
  CallSpan& span = ops.spans.emplace_back();
  span.begin = 0;
  span.end = 1;
  span.first = 10;
  span.last = 100;
  span.left_out = 2;
  return ops;
}

// Breaks the span of stream 0 at the first op of stream 1. `real`: what the span's ops are when they are asked for;
// empty: its op becomes a gap.
struct Breaker {
  void op(size_t stream, const FlowOps&, const FlowOp& op) {
    log += std::to_string(stream) + '@' + std::to_string(op.time) + ' ';
    if (stream == 1) order->break_span(0);
  }
  bool span_begins(size_t, const FlowOps&, const CallSpan&) { return true; }
  void span_ends(size_t, const FlowOps&, const CallSpan&) { log += "end "; }
  void span_broken(size_t) { log += "broken "; }
  bool whole(size_t, FlowOps& chunk, size_t at) {
    if (real.ops.empty()) {
      chunk.ops[at].kind = FlowOp::Kind::kGap;
      return false;
    }
    chunk = real;
    return true;
  }
  FlowOps real;
  OpOrder<Breaker>* order = nullptr;
  std::string log;
};

std::string order_of(FlowOps real, bool more) {
  Breaker breaker;
  breaker.real = std::move(real);
  OpOrder<Breaker> order(2, breaker);
  breaker.order = &order;
  FlowOps other;
  other.ops = {op_at(50), op_at(60)};
  order.add(0, lying_span(), kTimeMin);
  order.add(1, std::move(other), kTimeMin);
  if (more) {
    FlowOps next;
    next.ops = {op_at(55), op_at(200)};
    order.add(0, std::move(next), 150);
  }
  order.finish();
  return breaker.log;
}

// A damaged block stream: the ops of a span end before the span does. Found by fuzzing.
TEST(OpOrder, SpansWhoseOpsEndEarlierCanBeBroken) {
  FlowOps real;
  real.ops = {op_at(10), op_at(20), op_at(30)};
  CallSpan& span = real.spans.emplace_back();
  span.begin = 0;
  span.end = 3;
  span.last = 30;
  EXPECT_EQ(order_of(real, false), "1@50 broken 0@10 0@20 0@30 1@60 ");
  EXPECT_EQ(order_of(real, true), "1@50 broken 0@10 0@20 0@30 0@55 1@60 0@200 ");
  EXPECT_EQ(order_of({}, false), "1@50 broken 0@10 1@60 ");
  EXPECT_EQ(order_of({}, true), "1@50 broken 0@10 0@55 1@60 0@200 ");
}

}  // namespace
}  // namespace asof
