// CallTracker: spans of ops taken at once.
#include <algorithm>

#include "decoder/calls/call_tracker.h"
#include "textstore/time.h"

namespace asof {
namespace {

// Cpu::step after `times` changes of the time that were too small to count.
Time decayed(Time step, uint64_t times) {
  for (; times != 0 && step >= 8; --times) step -= step / 8;
  return step;
}

}  // namespace

void CallTracker::number_keys(FlowOps& chunk) {
  chunk.functions.clear();
  for (const SumKey& k : chunk.keys) chunk.functions.push_back(functions_.id(k.symbol, k.space, k.address));
}

bool CallTracker::span_begins(size_t stream, const FlowOps&, const CallSpan& span) {
  Cpu& c = cpus_[stream];
  if (!c.started || !c.flow || c.has_exit || c.has_async || c.since < span.relies) return false;
  Thread& t = *c.thread;
  auto& frames = t.stack.frames();
  if (frames.empty() || frames.size() + span.depth > CallStack::kMaxFrames) return false;
  const Frame& top = frames.back();
  const bool part = c.tracked && t.wanted;
  if ((part && top.part.id == 0) || (t.tracked && top.thread.id == 0)) return false;
  if (t.thread_unparented.slices.size() + t.part_unparented.slices.size() > kMaxUnparented) return false;
  if (has_time_ ? span.first < std::max(c.now, t.last) : c.now < t.last) return false;
  const auto& contexts = capture_.streams[stream].contexts;
  if (has_time_ && (!anchored_ || span.follows_records) && c.context + 1 < contexts.size() &&
      contexts[c.context + 1].time <= span.last)
    return false;
  for (size_t i = frames.size(); i > 0 && !span.not_back.empty(); --i) {
    if (std::ranges::binary_search(span.not_back, frames[i - 1].back)) return false;
    if (frames[i - 1].boundary()) break;
  }
  const Time begin = has_time_ ? span.first : c.now;
  const Time end = has_time_ ? span.last : c.now + static_cast<Time>(span.instructions);
  if (part && !sink_.takes_sum(c.track, begin, end)) return false;
  if (t.tracked && !sink_.takes_sum(t.track, begin, end)) return false;
  c.in_span = true;
  return true;
}

void CallTracker::span_ends(size_t stream, const FlowOps& chunk, const CallSpan& span) {
  Cpu& c = cpus_[stream];
  Thread& t = *c.thread;
  Frame& top = *t.stack.top();
  c.in_span = false;
  c.since += span.end - span.begin;
  const Time base = has_time_ ? 0 : c.now;
  const Time begin = has_time_ ? span.first : c.now;
  if (has_time_ && span.first > c.now) c.step = std::max(elapsed(c.now, span.first), c.step - c.step / 8);
  c.step = std::max(span.step, decayed(c.step, span.steps));
  c.count += span.instructions;
  t.count += span.instructions;
  summary_.instructions += span.instructions;
  c.now = has_time_ ? span.last : static_cast<Time>(c.count);
  summary_.end = std::max(summary_.end, c.now);
  t.last = std::max(t.last, base + (t.tracked ? std::max(span.last_open, span.last_close) : span.last_open));
  top.confidence = std::max(top.confidence, span.confidence);
  const auto told = [&](Activity& below, uint32_t track) {
    below.below += span.call_instructions;
    c.slices += span.calls;
    summary_.slices += span.calls;
    sink_.sum({begin, span, chunk}, track, below.id);
  };
  if (t.tracked) told(top.thread, t.track);
  if (c.tracked && t.wanted) told(top.part, c.track);
}

// A gap counts for its thread and CPU from when it is told.
void CallTracker::break_spans(const GapSlice& gap) {
  for (const Cpu& c : cpus_) {
    if (c.in_span && (c.cpu == gap.cpu || c.thread->tid == gap.tid)) break_span_(c.stream);
  }
}

Frame& CallTracker::stand_in(size_t stream) {
  if (!stand_in_) stand_in_ = std::make_unique<Thread>(*this);
  Thread& t = *stand_in_;
  t.stack.frames().resize(1);
  t.last = kTimeMin;
  t.count = 0;
  Cpu& c = cpus_[stream];
  c.started = c.flow = c.tracked = true;
  c.has_exit = c.has_async = false;
  c.thread = &t;
  c.now = has_time_ ? kTimeMin : 0;
  c.count = 0;
  t.on = &c;
  Frame& frame = t.stack.frames().front();
  frame = {};
  frame.part.id = next_id(c);
  return frame;
}

}  // namespace asof
