#include "decoder/calls/call_stub.h"

#include <algorithm>

#include "decoder/calls/span_finder.h"
#include "decoder/calls/timeline.h"
#include "textstore/check.h"

namespace asof {

FlowOps cut_spans(const FlowOps& ops) {
  FlowOps out;
  out.keys = ops.keys;
  size_t at = 0, left_out = 0;
  const auto copy = [&](size_t end) {
    for (; at < end; ++at) {
      FlowOp op = ops.ops[at];
      if (op.kind == FlowOp::Kind::kVisit) op.kind = FlowOp::Kind::kPoint;
      if (op.kind == FlowOp::Kind::kEvent) {
        out.events.push_back(ops.events[op.item]);
        op.item = static_cast<uint32_t>(out.events.size() - 1);
      } else if (op.kind == FlowOp::Kind::kGap) {
        out.gaps.push_back(ops.gaps[op.item]);
        op.item = static_cast<uint32_t>(out.gaps.size() - 1);
      }
      out.ops.push_back(op);
    }
  };
  for (const CallSpan& span : ops.spans) {
    copy(span.begin);
    CallSpan& cut = out.spans.emplace_back(span);
    cut.begin = out.ops.size();
    cut.end = cut.begin + 1;
    cut.left_out = span.end - span.begin - 1;
    // What it relies on begins before a span or behind it, and never within.
    const size_t since = span.begin - span.relies;
    cut.relies = span.relies;
    for (size_t i = out.spans.size() - 1; i > 0 && ops.spans[i - 1].begin >= since; --i)
      cut.relies -= out.spans[i - 1].left_out;
    out.ops.emplace_back().kind = FlowOp::Kind::kSpan;
    out.ops.back().time = ops.ops[span.begin].time;
    left_out += cut.left_out;
    at = span.end;
  }
  copy(ops.ops.size());
  ASOF_CHECK(out.ops.size() + left_out == ops.ops.size());
  return out;
}

size_t whole_size(const FlowOps& cut) { return whole_index(cut, cut.ops.size()); }

size_t whole_index(const FlowOps& cut, size_t at) {
  size_t whole = at;
  for (const CallSpan& span : cut.spans) {
    if (span.begin >= at) break;
    whole += span.left_out;
  }
  return whole;
}

CallStubs::CallStubs(const Capture& capture, const FlowJob& job)
    : has_time_(timeline_clock(capture) == TimelineSummary::Clock::kNanoseconds),
      reader_(job),
      finder_(std::make_unique<SpanFinder>(capture, has_time_)) {}

CallStubs::~CallStubs() = default;

std::vector<uint8_t> CallStubs::of(const Chunk& chunk) {
  FlowOps ops;
  reader_.read(chunk, ops);
  finder_->read(chunk.stream, ops);
  return put_calls(cut_spans(ops), has_time_);
}

}  // namespace asof
