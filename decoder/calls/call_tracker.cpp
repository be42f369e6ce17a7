#include "decoder/calls/call_tracker.h"

#include <algorithm>

#include "textstore/time.h"

namespace asof {
namespace {

constexpr uint64_t kCall32 = 5, kBranchArm64 = 4;

}  // namespace

CallTracker::CallTracker(const Capture& capture, const TimelineOptions& options, bool has_time,
                         TimelineSink& sink)
    : capture_(capture),
      options_(options),
      sink_(sink),
      has_time_(has_time),
      insn_size_(capture.machine == "aarch64" ? kBranchArm64 : kCall32),
      functions_(capture, [&sink](const TimelineFunction& f) { sink.function(f); }),
      cpus_(capture.streams.size()) {
  summary_.clock = has_time ? TimelineSummary::Clock::kNanoseconds : TimelineSummary::Clock::kInstructions;
  for (size_t i = 0; i < cpus_.size(); ++i) {
    Cpu& c = cpus_[i];
    c.stream = i;
    c.cpu = capture.streams[i].cpu;
    if (c.cpu < 0 || !options.cpu_tracks || !options.calls) continue;
    c.tracked = true;
    c.track = next_track_++;
    sink.track({c.track, TimelineTrack::Kind::kCpu, c.cpu, -1, -1, "CPU " + std::to_string(c.cpu)});
  }
  anchored_ = functions_.has_switcher() && !capture.exclude_kernel;
}

void CallTracker::op(size_t stream, const FlowOps& chunk, const FlowOp& op) {
  Cpu& c = cpus_[stream];
  advance(c, op);
  switch (op.kind) {
    case FlowOp::Kind::kPoint:
    case FlowOp::Kind::kVisit:
      break;
    case FlowOp::Kind::kExit:
      c.exit = op;
      c.has_exit = true;
      break;
    case FlowOp::Kind::kEntry:
      entry(c, op);
      break;
    case FlowOp::Kind::kAsync:
      c.async = op;
      c.has_async = true;
      c.has_exit = false;
      break;
    case FlowOp::Kind::kGap:
      lose(c, chunk, op);
      break;
    case FlowOp::Kind::kStart:
      end_block(c);
      c.flow = c.has_exit = c.has_async = false;
      break;
    case FlowOp::Kind::kStop:
      stop(c, op);
      break;
    case FlowOp::Kind::kEvent:
      event(c, chunk.events[op.item]);
      break;
    case FlowOp::Kind::kSpace:
      if (!anchored_ && c.flow) exchange_stacks(c, op);
      break;
    case FlowOp::Kind::kBlock:
      block(c, chunk, op);
      break;
    default:
      branch(c, op);
  }
  ++c.since;
}

void CallTracker::advance(Cpu& c, const FlowOp& op) {
  if (!c.started) start(c, op.time);
  const Time before = c.now;
  c.count += op.instructions;
  c.thread->count += op.instructions;
  summary_.instructions += op.instructions;
  c.now = has_time_ ? std::max(c.now, op.time) : static_cast<Time>(c.count);
  if (c.now != before && before != kTimeMin) c.step = std::max(elapsed(before, c.now), c.step - c.step / 8);
  summary_.end = std::max(summary_.end, c.now);
  if (Frame* top = c.thread->stack.top(); top != nullptr && op.instructions != 0)
    top->confidence = std::max(top->confidence, op.confidence);
  if (!anchored_) follow_records(c, lateness(c));
}

Landing CallTracker::landing(const Cpu& c, const FlowOp& op) {
  if (op.space != kNoSpace) return functions_.landing(op.symbol, op.space, op.to, op.origin);
  const auto& contexts = capture_.streams[c.stream].contexts;
  const Space space = contexts.empty() ? kNoSpace : contexts[c.context].space;
  const auto found = capture_.symbols.find(space, op.to, c.now);
  return functions_.landing(found ? found->symbol : nullptr, space, op.to, op.origin);
}

FlowOp CallTracker::joined(const FlowOp& exit, const FlowOp& entry) {
  FlowOp whole = exit;
  whole.kind = flow_op_kind(whole.branch);
  whole.to = entry.to;
  whole.space = entry.space;
  whole.symbol = entry.symbol;
  whole.origin = entry.origin;
  return whole;
}

bool CallTracker::stays(const FlowOp& branch) {
  const bool inside = branch.symbol != nullptr && branch.symbol == branch.left;
  switch (branch.kind) {
    case FlowOp::Kind::kCall:
      return branch.to == branch.back || (inside && branch.to != branch.symbol->range.begin);
    case FlowOp::Kind::kFarCall:
      return branch.to == branch.back;
    case FlowOp::Kind::kJump:
      return branch.symbol == branch.left;  // of code without names, too: as FlowReader::branch_to()
    default:
      return false;
  }
}

void CallTracker::entry(Cpu& c, const FlowOp& op) {
  if (c.has_async) {
    c.has_async = c.has_exit = false;
    if (c.open_gap) end_gap(c);
    c.flow = true;
    if (options_.calls)
      c.thread->stack.call(landing(c, op), c.async.from, c.async.from, Frame::Kind::kAsync, Slice::kAsync);
    return;
  }
  if (c.has_exit && c.flow) {
    c.has_exit = false;
    const FlowOp whole = joined(c.exit, op);
    if (stays(whole)) return;
    return branch(c, whole);
  }
  c.has_exit = false;
  if (!c.flow) return resume(c, op);
  if (!options_.calls) return;
  const Landing to = landing(c, op);
  const Frame* top = c.thread->stack.top();
  if (top != nullptr && (top->function == to.function || functions_[top->function].range.contains(op.to)))
    return;
  // Code without names is one function until it is called, wherever chunks end.
  if (top != nullptr && functions_.symbol(to.function) == nullptr &&
      functions_.symbol(top->function) == nullptr)
    return;
  FlowOp jump = op;
  jump.kind = FlowOp::Kind::kJump;
  branch(c, jump);
}

void CallTracker::branch(Cpu& c, const FlowOp& op) {
  if (!c.flow) return resume(c, op);
  c.has_async = c.has_exit = false;
  const Landing to = options_.calls ? landing(c, op) : Landing{};
  if (anchored_ && op.left != op.symbol && functions_.switcher(op.left)) exchange_stacks(c, op);
  if (!options_.calls) {
    if (op.kind == FlowOp::Kind::kFarReturn && is_kernel_address(op.from) && !is_kernel_address(op.to))
      follow_records(c, 0);
    return;
  }
  CallStack& stack = c.thread->stack;
  switch (op.kind) {
    case FlowOp::Kind::kCall:
      stack.call(to, op.from, op.back, Frame::Kind::kCall, 0);
      break;
    case FlowOp::Kind::kReturn:
      stack.ret(to);
      break;
    case FlowOp::Kind::kFarCall:
      stack.call(to, op.from, op.back, Frame::Kind::kSyscall, Slice::kSyscall);
      break;
    case FlowOp::Kind::kFarReturn:
      stack.far_return(to, insn_size_);
      if (is_kernel_address(op.from) && !is_kernel_address(op.to)) follow_records(c, 0);
      break;
    default:
      stack.jump(to);
  }
}

void CallTracker::resume(Cpu& c, const FlowOp& op) {
  const bool lost = c.lost;
  if (c.open_gap) end_gap(c);
  follow_records(c, 0);
  c.flow = true;
  c.lost = c.has_async = c.has_exit = false;
  if (lost) set_lost(c);
  if (!options_.calls) return;
  if (lost || c.thread->stack.frames().empty()) begin_stretch(c);
  c.thread->stack.resume(landing(c, op), lost);
}

void CallTracker::stop(Cpu& c, const FlowOp& op) {
  const BranchKind branch = op.branch != BranchKind::kNone ? op.branch
                            : c.has_exit                   ? c.exit.branch
                                                           : BranchKind::kNone;
  const Addr from = op.branch != BranchKind::kNone ? op.from : c.has_exit ? c.exit.from : op.from;
  const Addr back = op.branch != BranchKind::kNone ? op.back : c.has_exit ? c.exit.back : op.from;
  const bool async = c.has_async;
  end_block(c);
  if (c.flow && options_.calls) {
    if (branch == BranchKind::kFarRet && is_kernel_address(from) && !async) {
      c.thread->stack.leave_kernel();
    } else if (branch == BranchKind::kRet && !async) {
      c.thread->stack.leave_function();
    } else {
      c.thread->stack.outside(async ? c.async.from : back);
    }
  }
  c.flow = c.has_exit = c.has_async = false;
}

void CallTracker::lose(Cpu& c, const FlowOps& chunk, const FlowOp& op) {
  end_block(c);
  if (c.open_gap) end_gap(c);
  const Gap& g = chunk.gaps[op.item];
  const Stream& stream = capture_.streams[c.stream];
  c.open_gap = true;
  c.gap_wanted = c.thread->wanted;
  c.gap = {.stream = c.stream,
           .cpu = c.cpu,
           .tid = c.thread->tid,
           .begin = c.now,
           .end = c.now,
           .code = g.code,
           .reason = g.reason,
           .ip = g.ip,
           .resume_ip = g.resume_ip,
           .bytes = g.end > g.begin ? g.end - g.begin : 0,
           .file_offset = stream.file_offset(g.begin).value_or(0)};
  c.gap_until = has_time_ ? g.time.hi : kTimeMax;
  if (c.flow) c.lost_at = c.now;
  c.flow = c.has_exit = c.has_async = false;
  c.lost = true;
}

void CallTracker::end_gap(Cpu& c) {
  c.open_gap = false;
  c.gap.end = std::max(c.gap.begin, std::min(c.now, c.gap_until));
  ++summary_.gaps;
  summary_.text_missing = summary_.text_missing || family_of(c.gap.code) == CodeFamily::kText;
  if (!c.gap_wanted && !c.thread->wanted && !any_wanted(c.stream, c.gap.begin, c.gap.end)) return;
  if (break_span_) break_spans(c.gap);
  sink_.gap(c.gap);
}

void CallTracker::event(Cpu& c, const Event& e) {
  if (!c.thread->wanted) return;
  EventMark mark{c.stream, c.cpu, c.thread->tid, e};
  mark.event.time = c.now;
  sink_.event(mark);
}

void CallTracker::block(Cpu& c, const FlowOps& chunk, const FlowOp& op) {
  end_block(c);
  if (!c.thread->wanted) return;
  c.open_block = true;
  const Frame* top = c.thread->stack.top();
  c.block = {c.stream, c.cpu, c.thread->tid, c.now, c.now, 0, chunk.pieces[op.item]};
  if (top != nullptr) c.block.in = top->part.id != 0 ? top->part.id : top->thread.id;
}

void CallTracker::end_block(Cpu& c) {
  if (!c.open_block) return;
  c.open_block = false;
  c.block.end = c.now;
  sink_.block(c.block);
}

void CallTracker::finish() {
  for (Cpu& c : cpus_) {
    if (!c.started) continue;
    end_block(c);
    if (c.open_gap) {
      // Nothing came after it: it lasted to the end of the stream, as far as that is known.
      const Time end = capture_.streams[c.stream].bounds.hi;
      if (has_time_ && end != kTimeMax) c.now = std::max(c.now, end);
      end_gap(c);
    }
    leave(c, Slice::kEndUnknown);
  }
  for (auto& [key, t] : threads_) {
    t->stack.close_all(false);
    flush(t->thread_unparented, nullptr, true);
    forget_residencies(*t);
  }
}

}  // namespace asof
