#include "decoder/calls/span_finder.h"

#include <algorithm>

#include "textstore/time.h"

namespace asof {
namespace {

// Where no return goes: the frame that stands for the unknown returns there.
constexpr Addr kNowhere = ~Addr{0};
constexpr size_t kMostLevels = CallStack::kMaxFrames / 2;

// Either may be unknown (kTimeMin), in a span that is not taken.
uint64_t difference(Time from, Time to) { return static_cast<uint64_t>(to) - static_cast<uint64_t>(from); }

TimelineOptions local_options() {
  TimelineOptions options;
  options.thread_tracks = false;
  return options;
}

}  // namespace

SpanFinder::SpanFinder(const Capture& capture, bool has_time)
    : has_time_(has_time), options_(local_options()), tracker_(capture, options_, has_time, *this) {}

void SpanFinder::read(size_t stream, FlowOps& ops) {
  chunk_ = &ops;
  stream_ = stream;
  flow_ = false;
  pending_ = kNone;
  questions_.clear();
  tree_.begin(ops.keys);
  for (at_ = 0; at_ < ops.ops.size(); ++at_) {
    const FlowOp& op = ops.ops[at_];
    if (flow_ && known(op)) {
      follow(op);
    } else {
      leave_out(op);
    }
  }
  if (flow_) emit(pending_ != kNone ? pending_ : ops.ops.size());
  std::ranges::sort(ops.spans, {}, &CallSpan::begin);
}

void SpanFinder::begin_at(size_t op) {
  tracker_.stand_in(stream_).back = kNowhere;
  levels_.assign(1, {.opened = op, .body = op});
  ended_.clear();
  child_time_.assign(1, 0);
  flow_ = true;
}

// Whoever knows the stack takes it.
void SpanFinder::leave_out(const FlowOp& op) {
  if (flow_) emit(pending_ != kNone ? pending_ : at_);
  flow_ = false;
  pending_ = kNone;
  switch (op.kind) {
    case FlowOp::Kind::kEntry:
    case FlowOp::Kind::kCall:
    case FlowOp::Kind::kReturn:
    case FlowOp::Kind::kJump:
    case FlowOp::Kind::kFarCall:
    case FlowOp::Kind::kFarReturn:
      return begin_at(at_ + 1);  // the flow is in a function, whichever that is
    default:
      return;
  }
}

void SpanFinder::start_body(Level& level) const {
  level.body = at_ + 1;
  level.ended_body = ended_.size();
  level.function = tracker_.stand_in_->stack.frames().back().function;
  level.count = tracker_.cpus_[stream_].count;
}

void SpanFinder::follow(const FlowOp& op) {
  const size_t ended = ended_.size(), depth = levels_.size() - 1;
  auto& frames = tracker_.stand_in_->stack.frames();
  tracker_.op(stream_, *chunk_, op);
  const size_t left = depth - (ended_.size() - ended), now = frames.size() - 1;
  if (now > left) {
    Level next{.opened = pending_ != kNone ? pending_ : at_, .ended_before = ended};
    if (left < depth) {  // in place of one that ended; which one began this level is known to that
      next.opened = levels_[left + 1].opened;
      next.ended_before = levels_[left + 1].ended_before;
    }
    levels_.resize(left + 1);
    levels_.push_back(next);
    start_body(levels_.back());
    child_time_.resize(left + 1);
    child_time_.push_back(0);
  } else {
    levels_.resize(left + 1);
    child_time_.resize(left + 1);
    // A thunk is what it leads to.
    if (levels_.back().function != frames.back().function) start_body(levels_.back());
  }
  if (op.kind == FlowOp::Kind::kExit || op.kind == FlowOp::Kind::kAsync) {
    if (pending_ == kNone) pending_ = at_;
  } else if (const auto& c = tracker_.cpus_[stream_]; !c.has_exit && !c.has_async) {
    pending_ = kNone;
  }
}

// Frames end from the top.
void SpanFinder::slice(const Slice& s) {
  const uint64_t duration = difference(s.begin, s.end);
  const auto depth = static_cast<uint32_t>(child_time_.size() - 1);
  const uint64_t children = child_time_.back();
  child_time_.pop_back();
  child_time_.back() += duration;
  ended_.push_back({s.function, s.version, depth, s.begin, s.end, s.instructions, s.self_instructions,
                    duration - std::min(duration, children)});
}

// The spans of what was followed up to the op `end`.
void SpanFinder::emit(size_t end) {
  for (size_t i = 0; i < levels_.size(); ++i) {
    const bool top = i + 1 == levels_.size();
    const size_t until = top ? end : levels_[i + 1].opened;
    const size_t ended = top ? ended_.size() : levels_[i + 1].ended_before;
    if (ended > levels_[i].ended_body && until - levels_[i].body >= kLeast)
      add_span(i, levels_[i].body, until, levels_[i].ended_body, ended);
  }
  questions_.clear();
}

void SpanFinder::add_span(size_t level, size_t begin, size_t end, size_t first_ended, size_t ended) {
  CallSpan& span = chunk_->spans.emplace_back();
  span.begin = begin;
  span.relies = begin - levels_[0].opened;
  span.end = end;
  span.confidence = tracker_.stand_in_->stack.frames()[level].confidence;
  add_times(span);
  const Time base = has_time_ ? 0 : static_cast<Time>(levels_[level].count);
  const std::span<const EndedCall> calls(&ended_[first_ended], ended - first_ended);
  span.calls = calls.size();
  for (const EndedCall& call : calls) {
    span.last_open = std::max(span.last_open, call.begin - base);
    span.depth = std::max(span.depth, call.depth - static_cast<uint32_t>(level));
    if (call.depth != level + 1) continue;
    span.call_instructions += call.instructions;
    span.call_time += difference(call.begin, call.end);
  }
  span.last_close = calls.back().end - base;
  for (const Question& q : questions_) {
    if (q.op >= begin && q.op < end) span.not_back.push_back(q.back);
  }
  std::ranges::sort(span.not_back);
  span.not_back.erase(std::ranges::unique(span.not_back).begin(), span.not_back.end());
  tree_.add_up(calls, static_cast<uint32_t>(level) + 1, tracker_.functions_, span.sums);
}

// As CallTracker::advance() would count them.
void SpanFinder::add_times(CallSpan& span) const {
  span.first = span.last = chunk_->ops[span.begin].time;
  const auto change = [&](Time by) {
    span.step = std::max(by, span.step - span.step / 8);
    ++span.steps;
  };
  for (size_t i = span.begin; i < span.end; ++i) {
    const FlowOp& op = chunk_->ops[i];
    span.instructions += op.instructions;
    span.follows_records |= op.kind == FlowOp::Kind::kFarReturn || op.branch == BranchKind::kFarRet;
    if (!has_time_ && op.instructions != 0) change(static_cast<Time>(op.instructions));
    // A span that begins at an unknown time is not taken.
    if (has_time_ && op.time > span.last && span.last != kTimeMin) change(elapsed(span.last, op.time));
    span.last = std::max(span.last, op.time);
  }
}

// Whether what the op does depends on nothing that is unknown.
bool SpanFinder::known(const FlowOp& op) {
  switch (op.kind) {
    case FlowOp::Kind::kPoint:
    case FlowOp::Kind::kExit:
    case FlowOp::Kind::kAsync:
    case FlowOp::Kind::kEvent:
    case FlowOp::Kind::kVisit:
      return true;
    case FlowOp::Kind::kEntry:
      return known_entry(op);
    case FlowOp::Kind::kSpace:
      return tracker_.anchored_;
    case FlowOp::Kind::kGap:
    case FlowOp::Kind::kStart:
    case FlowOp::Kind::kStop:
    case FlowOp::Kind::kBlock:
      return false;
    default:
      return known_branch(op);
  }
}

bool SpanFinder::known_entry(const FlowOp& op) {
  if (op.space == kNoSpace) return false;
  const CallTracker::Cpu& c = tracker_.cpus_[stream_];
  if (c.has_async) return can_open(tracker_.landing(c, op));
  if (!c.has_exit) return levels_.size() > 1 && known_jump(tracker_.landing(c, op));
  const FlowOp whole = CallTracker::joined(c.exit, op);
  return CallTracker::stays(whole) || known_branch(whole);
}

bool SpanFinder::known_branch(const FlowOp& op) {
  if (op.space == kNoSpace) return false;
  if (tracker_.anchored_ && op.left != op.symbol && tracker_.functions_.switcher(op.left)) return false;
  const Landing to = tracker_.landing(tracker_.cpus_[stream_], op);
  switch (op.kind) {
    case FlowOp::Kind::kCall:
    case FlowOp::Kind::kFarCall:
      return can_open(to);
    case FlowOp::Kind::kReturn:
      return known_return(to);
    case FlowOp::Kind::kFarReturn:
      return known_far_return(to);
    default:
      return known_jump(to);
  }
}

// Without times, what version of a function it is depends on how many instructions ran before.
bool SpanFinder::can_open(const Landing& to) const {
  return levels_.size() < kMostLevels && (has_time_ || tracker_.functions_[to.function].changes.empty());
}

size_t SpanFinder::floor() const {
  const auto& frames = tracker_.stand_in_->stack.frames();
  for (size_t i = frames.size(); i > 1; --i) {
    if (frames[i - 1].boundary()) return i - 1;
  }
  return kNone;
}

size_t SpanFinder::find_function(uint32_t function, size_t floor) const {
  const auto& frames = tracker_.stand_in_->stack.frames();
  for (size_t i = frames.size(); i > (floor == kNone ? 1 : floor); --i) {
    if (frames[i - 1].function == function) return i - 1;
  }
  return kNone;
}

bool SpanFinder::known_return(const Landing& to) {
  const auto& frames = tracker_.stand_in_->stack.frames();
  if (frames.size() == 1 || !can_open(to) || to.at == kNowhere) return false;
  const size_t lowest = floor();
  for (size_t i = frames.size(); i > 1 && (lowest == kNone || i > lowest); --i) {
    if (frames[i - 1].back == to.at && !frames[i - 1].boundary()) return true;
  }
  if (lowest != kNone) return true;
  // If no call below returns there.
  if (frames.back().function != to.function && !to.start && find_function(to.function, lowest) == kNone)
    return false;
  questions_.push_back({pending_ != kNone ? pending_ : at_, to.at});
  return true;
}

bool SpanFinder::known_jump(const Landing& to) const {
  const auto& frames = tracker_.stand_in_->stack.frames();
  if (tracker_.functions_.return_thunk(to.function)) return true;
  if (frames.size() == 1 || !can_open(to)) return false;
  const Frame& top = frames.back();
  if (top.function == to.function || top.kind != Frame::Kind::kSlot) return true;
  return frames.size() > 2 && frames[frames.size() - 2].kind != Frame::Kind::kSlot;
}

bool SpanFinder::known_far_return(const Landing& to) const {
  const auto& frames = tracker_.stand_in_->stack.frames();
  const size_t at = floor();
  if (at == kNone || !can_open(to)) return false;
  const Frame& left = frames[at];
  if (left.back == to.at) return true;
  if (at + 1 < frames.size() && frames.back().function == to.function) return true;
  if (at == 1) return false;
  const Frame& interrupted = frames[at - 1];
  if (interrupted.function == to.function) return true;
  if (is_kernel_address(left.back) != is_kernel_address(to.at) && left.kind == Frame::Kind::kAsync)
    return false;
  if (interrupted.kind == Frame::Kind::kSlot || tracker_.functions_.slot(to.function)) return false;
  if (to.start && left.kind == Frame::Kind::kAsync && is_kernel_address(to.at)) return true;
  if (!is_kernel_address(to.at) && to.start) return true;
  for (size_t i = at; i > 1; --i) {
    if (frames[i - 1].function == to.function || frames[i - 1].boundary()) return true;
  }
  return false;
}

}  // namespace asof
